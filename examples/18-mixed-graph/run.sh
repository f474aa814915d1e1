#!/usr/bin/env bash
# A graph of Python functions, a Book and a Workflow. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
others=$here/..

kiln apply -f "$others/16-custom-resource/crd.yaml"
python "$others/16-custom-resource/printer.py" &
printer=$!
stop="kill $printer; kiln delete -f $others/16-custom-resource/crd.yaml"
if ! kiln get workflows >/dev/null 2>&1; then
  kiln apply -f "$others/14-workflow/crd.yaml"
  python "$others/14-workflow/stand_in.py" &
  stop="$stop -f $others/14-workflow/crd.yaml; kill $!"
fi
trap "{ $stop; } >/dev/null" EXIT

python "$here/graph.py"
echo "functions and objects of others have passed on their results: ok"
