"""Check the report of a night; `kiln get job -o json` comes on standard input."""

import json
import sys

job = json.load(sys.stdin)
report = job["status"]["result"]["value"]
print(json.dumps(report))
assert report["night"].endswith("Z")
assert report["shops"] == [{"shop": shop, "sum": 16} for shop in ("oslo", "lima", "kyoto")]
assert report["sum"] == 48
assert job["spec"]["type"] == "Scheduled"
