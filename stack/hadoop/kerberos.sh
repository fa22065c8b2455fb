#!/usr/bin/env bash
# usage: kerberos.sh VENV. Install MIT's KDC and client, and in VENV the libraries that send a ticket over HTTP.
set -euo pipefail
venv=$1
PATH="$PATH:/usr/sbin"

if ! { command -v krb5kdc && command -v kadmin.local && command -v kinit && command -v krb5-config; } >/dev/null; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || {
    echo "Install krb5-kdc, krb5-admin-server, krb5-user and libkrb5-dev." >&2
    exit 1
  }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq krb5-kdc krb5-admin-server krb5-user libkrb5-dev g++ >/dev/null
fi
"$venv/bin/uv" pip install -q --python "$venv" requests-gssapi==1.4.0 gssapi==1.12.0
