#!/usr/bin/env bash
# Migrate Airflow's database, and serve its pages to one user.
set -euo pipefail
airflow db migrate
(umask 077 && printf '{"admin": "%s"}' "$AIRFLOW_ADMIN_PASSWORD" >"$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE")
exec airflow api-server
