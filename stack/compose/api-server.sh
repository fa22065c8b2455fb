#!/usr/bin/env bash
# Brings Airflow's database up to date, and serves its pages to one user.
set -euo pipefail
airflow db migrate
(umask 077 && printf '{"admin": "%s"}' "$AIRFLOW_ADMIN_PASSWORD" >"$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE")
exec airflow api-server
