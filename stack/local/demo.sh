#!/usr/bin/env bash
# Run a DAG from end to end on this machine: one screen of progress, then its results. Airflow's log goes to a file.
set -euo pipefail
dag=${1:-digits}
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

status=0
PYTHONPATH="$root/plugins:$root" python -m stack.local.demo "$dag" --home "$TRAINYARD_HOME" || status=$?
echo
trainyard run show "$dag"
exit "$status"
