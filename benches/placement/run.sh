#!/bin/sh
# Installs the oracles and compares: benches/placement/run.sh OUT [exact|graphs|time …]. Build first:
#   cargo build --release -p maglor-cli
set -eu
here=$(dirname "$0")
out=$1
shift
venv=${TMPDIR:-/tmp}/maglor-placement-venv
[ -d "$venv" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --requirement "$here/requirements.txt"
for what in "${@:-exact}"; do
    mesh=
    if [ "$what" = graphs ] && [ -n "${MESH:-}" ]; then mesh="--mesh $MESH"; fi
    # shellcheck disable=SC2086
    nice -n 10 "$venv/bin/python" "$here/oracle.py" "$what" $mesh --out "$out" \
        --maglor "${MAGLOR:-target/release/maglor plan placement}"
done
