#!/usr/bin/env bash
# Runs one DAG from end to end on this machine and prints what came of it.
set -euo pipefail
dag=${1:-digits}
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

status=0
airflow dags test "$dag" || status=$?
newest=$(find "$TRAINYARD_HOME/storage/runs/$dag" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
echo
PYTHONPATH="$AIRFLOW__CORE__PLUGINS_FOLDER" python -m trainyard show "$newest"
exit "$status"
