#!/usr/bin/env bash
# A Task that is a Workflow of Argo. Needs a server: `kiln up`; without Argo there, a stand-in.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

kiln apply -f "$here/task.yaml" # without Argo there is no such kind yet: the Task waits for it
if ! kiln get workflows >/dev/null 2>&1; then
  kiln apply -f "$here/crd.yaml"
  python "$here/stand_in.py" &
  trap 'kiln delete -f "$here/task.yaml" -f "$here/crd.yaml" >/dev/null; kill %1' EXIT
else
  trap 'kiln delete -f "$here/task.yaml" >/dev/null' EXIT
fi

kiln wait greet --timeout 60s
kiln get workflows
[ "$(kiln result greet)" = '{"greeting":"hello world"}' ]
echo "a Workflow has greeted the world: ok"
