#!/usr/bin/env bash
# Tasks that a program of your own carries out. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python3 "$here/counter.py" & # as many as you like, on any machine
executor=$!
finish() {
    kiln delete -f "$here/tasks.yaml" >/dev/null || true
    kill "$executor" 2>/dev/null || true
    wait "$executor" 2>/dev/null || true
}
trap finish EXIT

kiln apply -f "$here/tasks.yaml"
kiln wait words --timeout 90s
[ "$(kiln result words)" = '{"to":2,"be":2,"or":1,"not":1}' ]
kiln wait nothing --timeout 90s || kiln why nothing
echo "words counted by a program of one's own: ok"
