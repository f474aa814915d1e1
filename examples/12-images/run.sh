#!/usr/bin/env bash
# A Task with an image of its own, and what became of the image. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/images.yaml" >/dev/null' EXIT

kiln apply -f "$here/images.yaml"
kiln logs -f longest
kiln wait longest --timeout 90s

[ "$(kiln result longest)" = '"glaze"' ]
ignored=$(kiln get task longest -o yaml | grep -B 3 -A 4 'reason: ImageIgnored' || true)
if [ -n "$ignored" ]; then
    echo "$ignored"
    echo "images are labels here, and the Task says so: ok"
else
    kiln get task longest -o yaml | grep podName
    echo "it has run in a Pod of its own image: ok"
fi
