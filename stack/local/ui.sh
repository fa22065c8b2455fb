#!/usr/bin/env bash
# Run Airflow with its pages, on this machine only, until Ctrl-C.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

logins="$AIRFLOW_HOME/simple_auth_manager_passwords.json.generated"
if [ ! -e "$logins" ]; then
  (umask 077 && python -c 'import json, secrets; print(json.dumps({"admin": secrets.token_urlsafe(12)}))' >"$logins")
fi
bind='import socket, sys; socket.create_server(("127.0.0.1", int(sys.argv[1]))).close()'
if ! python -c "$bind" "$AIRFLOW__API__PORT" 2>/dev/null; then
  echo "port $AIRFLOW__API__PORT is in use; end what uses it, or choose another: AIRFLOW__API__PORT=8090 make ui" >&2
  exit 1
fi
# Airflow's own log servers, which have no setting for their address, listen on all of them. One serves both here, and
# the API server asks for logs at the name that tasks have stored for this machine.
mkdir -p "$AIRFLOW_HOME/config"
echo 'def get_name(): return "localhost"' >"$AIRFLOW_HOME/config/this_machine.py"
log_port=$((AIRFLOW__API__PORT + 713))
export AIRFLOW__CORE__HOSTNAME_CALLABLE=this_machine.get_name
export AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT=$log_port AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT=$log_port
log="$AIRFLOW_HOME/ui.log"
set -m # a process group of its own, so that all its processes end together
(
  set +m
  airflow scheduler --skip-serve-logs &
  airflow triggerer --skip-serve-logs &
  airflow dag-processor &
  airflow api-server &
  uvicorn --factory --host 127.0.0.1 --port "$log_port" --no-access-log airflow.utils.serve_logs.log_server:get_app &
  wait -n # all end with the first
) >"$log" 2>&1 &
airflow=$!
set +m
stop() {
  kill -TERM -- "-$airflow" 2>/dev/null || return 0
  for _ in {1..50}; do
    pgrep -g "$airflow" >/dev/null || return 0
    sleep 0.2
  done
  kill -KILL -- "-$airflow" 2>/dev/null || true
}
trap stop EXIT
trap 'exit 130' INT TERM

echo "Airflow is starting; its log is $log"
python - "$AIRFLOW__API__BASE_URL" "$airflow" "$log" <<'PYTHON'
import json, os, sys, time, urllib.error, urllib.request

url, process, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
end = time.monotonic() + 300
while time.monotonic() < end:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        sys.exit(f"Airflow has ended; see {log}")
    try:
        with urllib.request.urlopen(f"{url}/api/v2/monitor/health", timeout=5) as response:
            health = json.load(response)
        if health["scheduler"]["status"] == health["dag_processor"]["status"] == "healthy":
            sys.exit(0)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        pass
    time.sleep(1)
sys.exit(f"Airflow was not healthy after 300 s; see {log}")
PYTHON
python - "$AIRFLOW__API__BASE_URL" "$logins" <<'PYTHON'
import json, pathlib, sys

for user, password in json.loads(pathlib.Path(sys.argv[2]).read_text()).items():
    print(f"{sys.argv[1]}  login {user}, password {password}  (stop with Ctrl-C)", flush=True)
PYTHON
wait "$airflow"
