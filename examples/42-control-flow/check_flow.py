"""Check both sets; `kiln get syncsets -o json` comes on standard input."""

import json
import sys

sets = {one["metadata"]["name"]: one["status"] for one in json.load(sys.stdin)["items"]}

good = sets["every-turn"]
assert good["phase"] == "Succeeded", good
result = good["result"]["value"]
print(json.dumps(result))
assert (result["first"], result["skipped"], result["attempts"]) == ("fast", "Skipped", 3)
assert abs(result["root"] ** 2 - 2) < 0.01
assert result["rounds"] == 2
assert result["shares"] == [20.0, 100 / 7, None]
steps = good["flow"]["steps"]
assert steps["first.slow"]["state"] == "Killed"
assert (steps["shares"]["succeeded"], steps["shares"]["failed"]) == (2, 1)
assert (steps["solve.iterate"]["total"], steps["solve.iterate"]["succeeded"]) == (2, 2)

bad = sets["goes-wrong"]
assert (bad["phase"], bad["reason"]) == ("Failed", "StepTimedOut"), bad
states = {name: step["state"] for name, step in bad["flow"]["steps"].items()}
print(json.dumps(states))
assert [states["fetch"], states["after"]] == ["Failed", "Waiting"]
assert [states["catch[0].other"], states["catch[1].page"]] == ["Waiting", "Succeeded"]
assert states["finally.clean"] == "Succeeded"
