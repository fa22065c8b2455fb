#!/usr/bin/env bash
# Run all tests in two processes, which take about as long. The second one has those on a real Hadoop, which mostly wait
# for it. The last lines say which tests failed, and which were not run because this machine lacks a program.
set -euo pipefail
set -m # lets an interrupt be forwarded to the second process, which then stops its Hadoop
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
second=(tests/cluster tests/dags tests/docs tests/packaging)
others=("${second[@]/#/--ignore=}")
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
  not_run+=("NOT RUN: tests of pages in a browser. Install chromium and chromedriver: apt-get install chromium chromium-driver")
  markers=(-m "not browser")
fi
if ! .venv/bin/python -c 'from stack.hadoop.jars import fetch_jars; fetch_jars()'; then
  not_run+=("NOT RUN: tests/cluster. Install Maven, which fetches Hadoop: apt-get install maven, or brew install maven")
  second=("${second[@]:1}")
fi

mkdir -p .run
log=$PWD/.run/second-tests.log
: >"$log"
status=0
in_home "$PWD/.run/second-tests" "${markers[@]}" "${second[@]}" >"$log" 2>&1 &
pid=$!
tail -n +1 -f --pid=$pid "$log" | sed -u 's/^/second | /' &
output=$!
(in_home "$PWD/.run" "${markers[@]}" "${others[@]}") || status=$?
[ $status != $INTERRUPTED ] || kill -INT $pid || true # it may have ended
wait $pid || status=$?
wait $output
grep -aE '^(FAILED|ERROR) |^=+ .*(passed|failed|error).* =+$' "$log" | sed 's/^/second | /' || true
[ ${#not_run[@]} = 0 ] || printf '%s\n' "${not_run[@]}"
exit $status
