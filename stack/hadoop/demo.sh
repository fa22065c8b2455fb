#!/usr/bin/env bash
# Run a DAG on the cluster in .run/hadoop, and print its results and the nodes on which its containers ran.
set -euo pipefail
dag=${1:-digits}
. "$(dirname "${BASH_SOURCE[0]}")/../local/env.sh"
hadoop="$TRAINYARD_HOME/hadoop"
. "$hadoop/env.sh"
export PYTHONPATH="$root:$AIRFLOW__CORE__PLUGINS_FOLDER"

status=0
python -m stack.hadoop.containers --home "$hadoop" airflow dags test "$dag" || status=$?
echo
python -m trainyard run show "$dag"
exit "$status"
