#!/usr/bin/env bash
# Jobs that are Python functions, deployed and submitted. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
finish() { kiln delete jobconfig measure report --ignore-not-found >/dev/null || true; }
trap finish EXIT

kiln deploy "$here/weather_jobs.py" --dry-run
kiln deploy "$here/weather_jobs.py"
[ -z "$(kiln deploy "$here/weather_jobs.py" | grep -v unchanged)" ] # a second time
python3 "$here/weather.py"
echo "jobs in Python: ok"
