#!/usr/bin/env bash
# usage: install.sh VENV. Horovod with torch and gloo, without MPI, built for the torch in VENV and installed there.
# The wheel is kept by what it was built of; building takes some minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$1
version=0.28.1

built_of=$({ "$venv/bin/python" -c 'import platform, sys, torch; print(sys.version, platform.machine(), torch.__version__)'
             echo "$version"; cat "$here"/*.cmake; } | sha256sum | cut -c1-12)
kept="$HOME/.cache/trainyard/horovod-$built_of"
installed="$venv/.horovod-$built_of"
[ -e "$installed" ] && exit 0

if ! compgen -G "$kept/*.whl" >/dev/null; then
  echo "Building Horovod $version; this takes some minutes." >&2
  making=$(mktemp -d)
  trap 'rm -rf "$making"' EXIT
  export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
  # pip would use a wheel again that it built for another torch.
  if ! CMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" MAKEFLAGS="-j$(nproc)" PATH="$venv/bin:$PATH" \
      "$venv/bin/python" -m pip wheel --no-cache-dir --no-deps --no-build-isolation --no-binary horovod -w "$making" \
      "horovod==$version" >"$making/log" 2>&1; then
    tail -40 "$making/log" >&2
    exit 1
  fi
  mkdir -p "$(dirname "$kept")"
  rm -rf "$kept.partial" && mkdir "$kept.partial"
  mv "$making"/*.whl "$kept.partial" && mv "$kept.partial" "$kept"
fi
"$venv/bin/uv" pip install -q --python "$venv" --no-deps "$kept"/*.whl
touch "$installed"
