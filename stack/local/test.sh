#!/usr/bin/env bash
# Run all tests in two processes: those on a real Hadoop, which mostly wait for it, and all others.
set -euo pipefail
set -m # lets an interrupt be forwarded to the tests in the background, which then stop their Hadoop
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
[ $status != $INTERRUPTED ] || kill -INT $cluster || true # it may have ended
wait $cluster || status=$?
wait # for the end of their output
exit $status
