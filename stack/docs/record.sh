#!/usr/bin/env bash
# Draw the terminal and the report of the README from a run on the Hadoop in .run/hadoop.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../local/env.sh"
. "$TRAINYARD_HOME/hadoop/env.sh"
export PYTHONPATH="$root:$AIRFLOW__CORE__PLUGINS_FOLDER"
# Nothing is there before, so every stage runs, and the model is the first champion.
export AIRFLOW_CONN_TRAINYARD_DEFAULT="${AIRFLOW_CONN_TRAINYARD_DEFAULT//\/trainyard\"//recording-$$\"}"
export -f trainyard
export root
python -m stack.docs.recording
