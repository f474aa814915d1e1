#!/usr/bin/env bash
# Jobs with many indexes: by count, by keys, by a matrix; and what tells whether they have succeeded.
# Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/indexes.yaml" -f "$here/strategies.yaml" >/dev/null' EXIT

kiln apply -f "$here/indexes.yaml" -f "$here/strategies.yaml"
jobs=(by-count by-keys by-matrix all-of-them any-of-them two-of-three some-may-fail)
kiln wait "${jobs[@]/#/job/}" --for=condition=Finished --timeout 90s >/dev/null

diff - <(for index in 0 1 2 3; do kiln logs "by-matrix-$index"; done) <<'END'
by-matrix-0 is oslo, floor 1
by-matrix-1 is oslo, floor 2
by-matrix-2 is lima, floor 1
by-matrix-3 is lima, floor 2
END
kiln get jobs "${jobs[@]}"
kiln get jobs "${jobs[@]}" -o json | python3 "$here/check_indexes.py"
echo "seven Jobs and how they end: ok"
