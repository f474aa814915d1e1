#!/usr/bin/env bash
# Variables from a Secret and a ConfigMap, for a command and for Python. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/objects.yaml" >/dev/null' EXIT

kiln apply -f "$here/objects.yaml" >/dev/null
kiln wait open-door --timeout 60s >/dev/null
[ "$(kiln result open-door)" = '"the door in the forest is open"' ]

said=$(python3 "$here/doors.py")
echo "$said" | head -n 2
[ "$(echo "$said" | head -n 2 | sort -u)" = "front is open, back is open" ]
echo "$said" | tail -n 2 | while read -r id; do
    kiln why "$id" | grep -q "did not have to run (Cached): it has the result of task"
done
echo "opened with a Secret, and not twice: ok"
