#!/usr/bin/env bash
# Tasks that programs of your own carry out: one in Python, one with curl only. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python3 "$here/counter.py" & # as many as you like, on any machine
python=$!
"$here/counter.sh" &
shell=$!
finish() {
    kiln delete -f "$here/tasks.yaml" >/dev/null || true
    kill "$python" "$shell" 2>/dev/null || true
    wait "$python" "$shell" 2>/dev/null || true
}
trap finish EXIT

kiln apply -f "$here/tasks.yaml"
kiln wait words --timeout 90s
[ "$(kiln result words)" = '{"to":2,"be":2,"or":1,"not":1}' ]
[ "$(python3 "$here/ask.py")" = 2 ]
kiln wait length --timeout 90s
[ "$(kiln result length)" = 6 ]
kiln wait nothing --timeout 90s || kiln why nothing
echo "words counted by programs of one's own: ok"
