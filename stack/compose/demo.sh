#!/usr/bin/env bash
# Runs one DAG on the containers, and prints which of YARN's containers ran where and what came of the run.
set -euo pipefail
dag=${1:-digits}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
set -a
. ./.env
set +a

status=0
PYTHONPATH=.:plugins .venv/bin/python -m stack.compose.demo "$dag" || status=$?
echo
$COMPOSE exec -T scheduler python -m trainyard show "$dag"
exit "$status"
