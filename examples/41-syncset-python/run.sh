#!/usr/bin/env bash
# A SyncSet that is built in Python, tried in its own process, and run on a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
trap 'kiln delete syncset/portfolio datapond/portfolio-pond --ignore-not-found >/dev/null' EXIT

kiln apply -f - <<'END'
{apiVersion: kilnwork.dev/v1alpha1, kind: DataPond, metadata: {name: portfolio-pond}}
END
python3 "$here/portfolio.py"
echo "the same flow here and there: ok"
