#!/usr/bin/env bash
# Results of tasks: printed, passed on, written to a file. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=$(mktemp -d)
trap 'kiln delete -f "$here/tasks.yaml" >/dev/null; rm -rf "$directory"' EXIT

kiln apply -f "$here/tasks.yaml"
kiln wait sum bytes --timeout 90s

kiln result sum
[ "$(kiln result sum)" = '{"count": 100, "sum": 5050}' ]
kiln result bytes -o "$directory/three.bin"
[ "$(od -An -tu1 "$directory/three.bin" | tr -s ' ')" = " 0 1 2" ]
kiln get task sum -o yaml | grep -A 4 'value:' # JSON up to 8 KiB stands in the Task as well

id=$(python3 "$here/squares.py" "$directory/runs") # that program has ended, and its result is there
[ "$(kiln result "$id" --from "$directory/runs")" = "[0,1,4,9,16]" ]
echo "100 numbers, their sum, three bytes and five squares: ok"
