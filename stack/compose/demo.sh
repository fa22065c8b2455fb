#!/usr/bin/env bash
# Run a DAG on the containers, and print on which nodes YARN's containers ran, and the result of the run.
set -euo pipefail
dag=${1:-digits}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
set -a
. ./.env
set +a

status=0
PYTHONPATH=.:plugins .venv/bin/python -m stack.compose.demo "$dag" || status=$?
echo
$COMPOSE exec -T scheduler python -m trainyard run show "$dag"
exit "$status"
