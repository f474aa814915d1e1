#!/usr/bin/env bash
# A graph of Python functions, a Book and a Workflow. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
definitions=("$here/../16-custom-resource/crd.yaml")
controllers=("$here/../16-custom-resource/printer.py")
if ! kiln get workflows >/dev/null 2>&1; then
  definitions+=("$here/../14-workflow/crd.yaml")
  controllers+=("$here/../14-workflow/stand_in.py")
fi

for definition in "${definitions[@]}"; do kiln apply -f "$definition"; done
for controller in "${controllers[@]}"; do python "$controller" & done
end() {
  for definition in "${definitions[@]}"; do kiln delete -f "$definition" >/dev/null; done
  kill $(jobs -p)
}
trap end EXIT

python "$here/graph.py"
echo "functions and objects of others have passed on their results: ok"
