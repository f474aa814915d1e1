"""Check how the Jobs of this example have ended: `kiln get jobs -o json` is standard input."""

import json
import sys

found = {one["metadata"]["name"]: one["status"] for one in json.load(sys.stdin)["items"]}
ends = {name: (status["phase"], status.get("reason", "")) for name, status in found.items()}
ran = ("Succeeded", "")
assert ends == {
    "at-once-1": ran,
    "at-once-2": ran,
    "alone-2": ("AdmissionError", "Forbidden"),
    "in-turn-1": ran,
    "in-turn-2": ran,
    "in-turn-3": ran,
    "in-turn-4": ("AdmissionError", "QueueFull"),
    "newest-1": ("Killed", "Replaced"),
    "newest-2": ran,
    "write": ran,
    "read-1": ran,
    "read-2": ran,
}, ends
for earlier, later in [
    ("in-turn-1", "in-turn-2"),
    ("in-turn-2", "in-turn-3"),
    ("newest-1", "newest-2"),
    ("write", "read-1"),
    ("write", "read-2"),
]:
    assert found[earlier]["finishTime"] <= found[later]["startTime"], (earlier, later)
