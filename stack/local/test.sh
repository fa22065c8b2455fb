#!/usr/bin/env bash
# Runs all tests, two at a time: those on a real Hadoop, which mostly wait for it, beside all others.
set -euo pipefail
set -m # an interrupt can then be passed on to the tests in the background, which end their Hadoop by it
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
INTERRUPTED=2 # pytest's exit status

in_home() {
  export TRAINYARD_HOME=$1
  shift
  . stack/local/env.sh
  exec pytest "$@"
}

in_home "$PWD/.run/cluster-tests" tests/cluster > >(sed -u 's/^/cluster | /') 2>&1 &
cluster=$!
status=0
(in_home "$PWD/.run" --ignore=tests/cluster) || status=$?
[ $status != $INTERRUPTED ] || kill -INT $cluster || true # or it has ended
wait $cluster || status=$?
wait # for the last of what they said
exit $status
