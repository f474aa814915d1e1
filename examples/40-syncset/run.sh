#!/usr/bin/env bash
# A portfolio that is priced next to its data, shard by shard. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
trap 'kiln delete syncset/eod-risk datapond/risk-pond --ignore-not-found >/dev/null' EXIT

sed "s|DIRECTORY|$here|" "$here/set.yaml" | kiln apply -f -
kiln wait syncset/eod-risk --for=condition=Succeeded --timeout 90s >/dev/null
kiln get syncset eod-risk
kiln data
kiln why syncset/eod-risk
kiln get syncset eod-risk -o json | python3 "$here/check_set.py"
echo "pinned, fetched, priced in 4 shards, added up: ok"
