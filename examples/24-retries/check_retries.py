"""Check how the Jobs of this example have ended: `kiln get jobs -o json` is standard input."""

import json
import sys

found = {one["metadata"]["name"]: one["status"] for one in json.load(sys.stdin)["items"]}
ends = {
    name: (
        status["phase"],
        status.get("reason", ""),
        [t.get("retryIndex", 0) for t in status.get("tasks", [])],
    )
    for name, status in found.items()
}
assert ends == {
    "busy-at-first": ("Succeeded", "", [2]),
    "hopeless": ("Failed", "IndexesFailed", [0]),
    "too-slow": ("Succeeded", "", [1]),
    "far-too-slow": ("Failed", "JobTimedOut", [0]),
    "unwanted": ("Killed", "Killed", []),
    "looked-after": ("Succeeded", "", [0, 1, 0]),
}, ends
assert found["looked-after"]["result"]["value"] == {"results": [0, None, 20]}
