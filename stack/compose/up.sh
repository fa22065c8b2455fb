#!/usr/bin/env bash
# Build and start the containers with $COMPOSE, and exit when all are healthy. Secrets are generated once, in .env.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ ! -e .env ]; then
  while IFS= read -r line; do
    case $line in
    *=) echo "$line$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')" ;;
    *) echo "$line" ;;
    esac
  done <.env.example | (umask 077 && cat >.env)
fi
. ./.env

for folder in dags plugins etl trainer; do # mounted into containers, whose user has the id 1000
  if [ "$(id -u)" != 1000 ] && [ -n "$(find -L "$folder" ! -perm -o=r -print -quit)" ]; then
    echo "containers cannot read $folder: run chmod -R o+rX dags plugins etl trainer, and try again" >&2
    exit 1
  fi
done

$COMPOSE build
$COMPOSE up -d
end=$((SECONDS + 600))
while true; do
  containers=$($COMPOSE ps -aq)
  # shellcheck disable=SC2086
  states=$(docker inspect -f '{{.Name}} {{.State.Status}} {{.State.Health.Status}}' $containers)
  waiting=$(grep -v ' running healthy$' <<<"$states") || break
  if [ "$SECONDS" -gt "$end" ] || grep -q ' exited ' <<<"$waiting"; then
    $COMPOSE logs --tail 30 >&2
    echo "$waiting" >&2
    exit 1
  fi
  sleep 1
done
cat <<TEXT
Airflow          http://127.0.0.1:$AIRFLOW_PORT  login admin, password $AIRFLOW_ADMIN_PASSWORD
ResourceManager  http://127.0.0.1:$RESOURCEMANAGER_PORT
Spark's history  http://127.0.0.1:$HISTORY_PORT
WARNING: every user of this machine can run commands in these containers through the ResourceManager, which believes
whatever name a client gives, and read and change what is on their HDFS.
TEXT
