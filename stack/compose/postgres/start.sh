#!/usr/bin/env bash
# Makes the database on the first start, in a folder that gets its name when it is complete; then serves it.
set -euo pipefail
if [ ! -e "$PGDATA" ]; then
  staged="$PGDATA.new"
  rm -rf "$staged"
  initdb -D "$staged" --username=airflow --pwfile=<(echo "$POSTGRES_PASSWORD") --auth=scram-sha-256 \
    --encoding=UTF8 --locale=C.UTF-8 >/dev/null
  echo 'host all all all scram-sha-256' >>"$staged/pg_hba.conf"
  echo 'CREATE DATABASE airflow' | postgres --single -D "$staged" postgres >/dev/null
  mv "$staged" "$PGDATA"
fi
exec postgres -c listen_addresses='*'
