#!/usr/bin/env bash
# Run all tests in two processes that take about as long: those on a real Hadoop, then those of the trainer, and
# all others.
# The last lines say which tests failed, and which were not run because this machine lacks a program.
set -euo pipefail
set -m # lets an interrupt be forwarded to the tests in the background, which then stop their Hadoop
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $OSTYPE == linux* ]] || { echo "make test runs on Linux; elsewhere run make check and make demo" >&2; exit 1; }
INTERRUPTED=2 # pytest's exit status

in_home() {
  export TRAINYARD_HOME=$1 PYTHONUNBUFFERED=1
  shift
  . stack/local/env.sh
  exec pytest "$@"
}

not_run=()
markers=()
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
  not_run+=("NOT RUN: tests of pages in a browser. Install chromium and chromedriver: apt-get install chromium chromium-driver")
  markers=(-m "not browser")
fi
hadoop=true
beside=(tests/cluster tests/trainer)
if ! .venv/bin/python -c 'from stack.hadoop.jars import fetch_jars; fetch_jars()'; then
  not_run+=("NOT RUN: tests/cluster. Install Maven, which fetches Hadoop: apt-get install maven, or brew install maven")
  hadoop=false
  beside=(tests/cluster)
fi

mkdir -p .run
log=$PWD/.run/cluster-tests.log
: >"$log"
status=0
if $hadoop; then
  in_home "$PWD/.run/cluster-tests" "${markers[@]}" "${beside[@]}" >"$log" 2>&1 &
  cluster=$!
  tail -n +1 -f --pid=$cluster "$log" | sed -u 's/^/cluster | /' &
  output=$!
fi
(in_home "$PWD/.run" "${markers[@]}" "${beside[@]/#/--ignore=}") || status=$?
if $hadoop; then
  [ $status != $INTERRUPTED ] || kill -INT $cluster || true # it may have ended
  wait $cluster || status=$?
  wait $output
fi
grep -aE '^(FAILED|ERROR) |^=+ .*(passed|failed|error).* =+$' "$log" | sed 's/^/cluster | /' || true
[ ${#not_run[@]} = 0 ] || printf '%s\n' "${not_run[@]}"
exit $status
