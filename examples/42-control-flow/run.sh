#!/usr/bin/env bash
# What a flow can do beside fanning out: fork, until, if, allow, retry, catch, finally; and how it is resumed.
# Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/sets.yaml" --ignore-not-found >/dev/null' EXIT

kiln apply -f "$here/sets.yaml"
kiln wait syncset/goes-wrong --for=condition=Succeeded=False --timeout 90s >/dev/null
kiln why syncset/goes-wrong
kiln resume syncset/every-turn
kiln wait syncset/every-turn --for=condition=Succeeded --timeout 90s >/dev/null
kiln get syncsets every-turn goes-wrong
kiln get syncsets every-turn goes-wrong -o json | python3 "$here/check_flow.py"
echo "every turn was taken: ok"
