"""Checks that the counter did what it must, waiting for it first; exits 1 and says what differs.

python3 verify.py              the counter on the Kubernetes API: 51 Tasks and their objects
python3 verify.py --spawned    the counter on curl: 51 spawned tasks and the last one's result
"""

import argparse
import json
import subprocess
import sys
import time


def kiln(*arguments: str) -> dict:
    done = subprocess.run(
        ["kiln", *arguments, "-o", "json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"kiln {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def look(*, spawned: bool) -> dict[str, dict]:
    """Return the Tasks by name, each with at least `state`: objects, or spawned ones of the
    journal.
    """
    if spawned:
        return {task["name"]: task for task in kiln("get", "tasks", "--spawned")["items"]}
    items = kiln("get", "tasks")["items"]
    return {t["metadata"]["name"]: {"state": "Pending", **t.get("status", {})} for t in items}


def settle(last: str, *, spawned: bool, deadline: float) -> dict[str, dict]:
    """Wait until `last` has finished, a task has failed, or time is up; return the counter's
    tasks.
    """
    prefix, shown = last.rstrip("0123456789"), -1
    while True:
        tasks = {n: t for n, t in look(spawned=spawned).items() if n.startswith(prefix)}
        states = [task["state"] for task in tasks.values()]
        done = states.count("Success")
        if done != shown:
            print(f"{done} tasks done", flush=True)
            shown = done
        over = tasks.get(last, {}).get("state") == "Success"
        if over or {"Failed", "Killed"} & set(states) or time.monotonic() > deadline:
            return tasks
        time.sleep(0.25)


HINT = """`kiln why NAME` and `kiln logs NAME` say more of a task. If a program was not found,
the server was started without `--workdir examples/01-counter`."""


def listed(names: list[str]) -> str:
    """Return the first few names, in the order of their numbers."""
    some = sorted(names, key=lambda name: int(name.rpartition("-")[2]))[:3]
    return ", ".join(some) + (", …" if len(names) > len(some) else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spawned", action="store_true", help="check the curl counter")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--timeout", type=float, default=120, help="seconds to wait for the end")
    options = parser.parse_args()
    prefix = "count-" if options.spawned else "task-"
    last = f"{prefix}{options.limit}"
    tasks = settle(last, spawned=options.spawned, deadline=time.monotonic() + options.timeout)
    differences = []

    expected = {f"{prefix}{number}" for number in range(options.limit + 1)}
    if missing := sorted(expected - tasks.keys()):
        differences.append(f"{len(missing)} tasks are missing: {listed(missing)}")
    if extra := sorted(tasks.keys() - expected):
        differences.append(f"{len(extra)} tasks should not be there: {listed(extra)}")
    differences += [
        f"{name} is {task['state']} ({task.get('message', '')}), expected Success"
        for name, task in tasks.items()
        if task["state"] != "Success"
    ]
    if not differences:
        differences += final(options, tasks[last])
    if differences:
        sys.exit("the counter went wrong:\n  " + "\n  ".join(differences) + f"\n{HINT}")
    print(f"{len(tasks)} tasks succeeded and the count is {options.limit}")


def final(options: argparse.Namespace, last: dict) -> list[str]:
    """Return what is wrong with the final count."""
    if options.spawned:
        count = last.get("result", {}).get("value", {}).get("count")
    else:
        name = f"task-{options.limit - 1}-output"
        count = kiln("get", "taskobject", name)["data"]["count"]
    if count != str(options.limit):
        return [f"the final count is {count!r}, expected {str(options.limit)!r}"]
    return []


if __name__ == "__main__":
    main()
