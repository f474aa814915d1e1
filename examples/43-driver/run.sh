#!/usr/bin/env bash
# A function that drives: it decides by results which tasks come next. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
trap 'kiln delete syncset/driver datapond/driver-pond --ignore-not-found >/dev/null' EXIT

kiln apply -f - <<'END'
{apiVersion: kilnwork.dev/v1alpha1, kind: DataPond, metadata: {name: driver-pond}}
END
python3 "$here/driver.py"
