"""Check how the Jobs of this example have ended: `kiln get jobs -o json` is standard input."""

import json
import sys

found = {one["metadata"]["name"]: one["status"] for one in json.load(sys.stdin)["items"]}
ends = {name: (status["phase"], status.get("reason", "")) for name, status in found.items()}
assert ends == {
    "publish": ("Succeeded", ""),
    "count-words": ("Succeeded", ""),
    "fails": ("Failed", "IndexesFailed"),
    "not-without-it": ("Failed", "DependencyFailed"),
    "tidy-up": ("Succeeded", ""),
}, ends
assert found["count-words"]["result"]["value"] == {"results": [1, 2, 10]}
assert found["count-words"]["finishTime"] <= found["publish"]["startTime"]
