#!/usr/bin/env bash
# Jobs that are Python functions, deployed and submitted. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
finish() { kiln delete jobconfig measure report --ignore-not-found >/dev/null || true; }
trap finish EXIT

kiln deploy "$here/nightly.py" --dry-run
kiln deploy "$here/nightly.py"
[ -z "$(kiln deploy "$here/nightly.py" | grep -v unchanged)" ] # a second time
python3 "$here/submit.py"
echo "jobs in Python: ok"
