#!/usr/bin/env bash
# A Task that is an object of another kind, and its controller. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

kiln apply -f "$here/task.yaml" # the kind is not there yet: the Task waits for it
kiln apply -f "$here/crd.yaml"
python "$here/printer.py" &
trap 'kiln delete -f "$here/task.yaml" -f "$here/crd.yaml" >/dev/null; kill %1' EXIT

kiln wait print-a-book --timeout 40s
kiln get books
[ "$(kiln result print-a-book)" = 3 ]
echo "a controller that knows no kilnwork has done a Task: ok"
