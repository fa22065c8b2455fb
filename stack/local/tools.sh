#!/usr/bin/env bash
# Install what tests need beside Python: as root where there is apt-get; else say what is missing.
# Without a browser or Maven, the tests that use them are not run (test.sh).
set -euo pipefail

list_missing() {
  for program in "$@"; do command -v "$program" >/dev/null || echo "$program"; done
}

[ -n "$(list_missing chromium chromedriver mvn g++ cmake)" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver maven g++ cmake >/dev/null
elif missing=$(list_missing g++ cmake) && [ -n "$missing" ]; then
  echo "$(echo $missing) needed to build Horovod: apt-get install g++ cmake, or xcode-select --install && brew install cmake" >&2
  exit 1
fi
