#!/usr/bin/env bash
# usage: install.sh VENV. Build Horovod with gloo and without MPI for the torch in VENV, and install it there.
# The wheel is cached by the versions that it was built with; building takes some minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$1
version=0.28.1

build_key=$({ "$venv/bin/python" -c 'import platform, sys, torch; print(sys.version, platform.machine(), torch.__version__)'
             echo "$version"; cat "$here"/*.cmake; } | sha256sum | cut -c1-12)
cache="$HOME/.cache/trainyard/horovod-$build_key"
installed="$venv/.horovod-$build_key"
[ -e "$installed" ] && exit 0

if ! compgen -G "$cache/*.whl" >/dev/null; then
  echo "Building Horovod $version; this takes some minutes." >&2
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
  export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
  # Without --no-cache-dir, pip would reuse a wheel that it built for another torch.
  if ! CMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" MAKEFLAGS="-j$(nproc)" PATH="$venv/bin:$PATH" \
      "$venv/bin/python" -m pip wheel --no-cache-dir --no-deps --no-build-isolation --no-binary horovod -w "$build" \
      "horovod==$version" >"$build/log" 2>&1; then
    tail -40 "$build/log" >&2
    exit 1
  fi
  mkdir -p "$(dirname "$cache")"
  rm -rf "$cache.partial" && mkdir "$cache.partial"
  mv "$build"/*.whl "$cache.partial" && mv "$cache.partial" "$cache"
fi
"$venv/bin/uv" pip install -q --python "$venv" --no-deps "$cache"/*.whl
touch "$installed"
