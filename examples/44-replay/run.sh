#!/usr/bin/env bash
# A run, a source that changes, and the run again on the data of the first time. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
lake=$(mktemp -d "${TMPDIR:-/tmp}/kiln-orders.XXXXXX")
clean_up() {
    kiln delete syncset/nightly-sum datapond/replay-pond --ignore-not-found >/dev/null || true
    rm -rf "$lake"
}
trap clean_up EXIT
check() { kiln get syncset nightly-sum -o json | python3 "$here/check_replay.py" "$@"; }

seq 1 10 >"$lake/oslo"
seq 1 20 >"$lake/lima"
sed "s|DIRECTORY|$lake|; s|PROGRAMS|$here|" "$here/set.yaml" | kiln apply -f -
kiln wait syncset/nightly-sum --for=final --timeout 90s >/dev/null
check 1 265 0

echo 1000000 >>"$lake/oslo" # a user corrects the orders
rm "$lake/lima"
kiln replay nightly-sum --wait --timeout 90s # nothing is read from the source
check 2 265 2

sed "s|DIRECTORY|$lake|; s|PROGRAMS|$here|; s|^  keep:|  generation: 3\n&|" "$here/set.yaml" | kiln apply -f -
kiln wait syncset/nightly-sum --for=final --timeout 90s >/dev/null
check 3 1000055 0

kiln replay nightly-sum --generation 1 --wait --timeout 90s
check 4 265 2
echo "the same data gives the same result: ok"
