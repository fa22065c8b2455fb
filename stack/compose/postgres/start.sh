#!/usr/bin/env bash
# Create the database on the first start, in a folder that is renamed when it is complete; then serve it.
set -euo pipefail
if [ ! -e "$PGDATA" ]; then
  staging="$PGDATA.new"
  rm -rf "$staging"
  initdb -D "$staging" --username=airflow --pwfile=<(echo "$POSTGRES_PASSWORD") --auth=scram-sha-256 \
    --encoding=UTF8 --locale=C.UTF-8 >/dev/null
  echo 'host all all all scram-sha-256' >>"$staging/pg_hba.conf"
  echo 'CREATE DATABASE airflow' | postgres --single -D "$staging" postgres >/dev/null
  mv "$staging" "$PGDATA"
fi
exec postgres -c listen_addresses='*'
