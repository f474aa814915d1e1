#!/usr/bin/env bash
# Options: a JobConfig that asks for values, two Jobs that give them, and one that gives wrong ones.
# Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/jobs.yaml" -f "$here/refund.yaml" >/dev/null' EXIT

kiln apply -f "$here/refund.yaml" -f "$here/jobs.yaml"
kiln wait job/refund-full job/refund-short job/refund-wrong --for=condition=Finished --timeout 60s

diff - <(kiln logs refund-full-0) <<'END'
order A-4711 $(reboot) of 5 Mar 2026: late, 1999 * 0.5
copy for stock
copy for law
goods: [{"count":2,"sku":"tea"}]
END
diff - <(kiln logs refund-short-0) <<'END'
order A-4712 ${job.name} of : damaged, 500 * 1.0
copy for sales
letter to the customer
goods: []
END
kiln get job refund-wrong -o json | python3 -c '
import json, sys
status = json.load(sys.stdin)["status"]
print(status["phase"], status["message"], sep="\n")
assert status["phase"] == "AdmissionError"
assert all(name in status["message"] for name in ("order", "reason", "cnets", "cents"))'

# The same from the command line: what is wrong is named before anything is made.
kiln run-job refund --option order=A-4714 --option cents=many 2>&1 && exit 1
kiln run-job refund --option order=A-4714 --option copies=sales,law -O 'cents: 250' --name refund-by-hand --watch
[ "$(kiln logs refund-by-hand-0 | grep -c 'copy for')" = 2 ]
echo "values of eight types, and every wrong one named at once: ok"
