#!/usr/bin/env bash
# Run a DAG from end to end on this machine, and print its results.
set -euo pipefail
dag=${1:-digits}
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

status=0
airflow dags test "$dag" || status=$?
echo
trainyard show "$dag"
exit "$status"
