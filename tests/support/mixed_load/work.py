"""Work of a mixed load: declared Tasks, a chain of Tasks that create each other, file jobs.

Used by `run`. All of it is requested while the server is being killed, so each request is repeated
until it is known to be accepted, under a name or a key that makes it idempotent.
"""

import json
import random
import threading
import time
from pathlib import Path
from typing import Any
from urllib import parse

from kilnwork.kit import ids
from support import up_files
from support import up_server as up_support
from support.mixed_load import client

TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/tasks"
OBJECTS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/taskobjects"
FINAL = ("Success", "Failed", "Killed")
RETRY = {"maxAttempts": 2, "maxLosses": 50, "delaySeconds": 0.1}

MAPPER = '''\
def shout(line):
    """One line: most are results, some are bad, some give nothing."""
    number = int(line.split()[0])
    if number % 97 == 0:
        raise ValueError(f"bad {number}")
    return None if number % 53 == 0 else f"{line.upper()} {number * number}"
'''


class Tasks:
    """Declared Tasks, each with one right outcome."""

    def __init__(self, seed: int, server: client.Client, *, count: int) -> None:
        self._chance = random.Random(f"tasks-{seed}")
        self._server = server
        self._count = count
        self.expected: dict[str, tuple[str, Any]] = {}
        """By name: state, and the result's value or the exit code."""

    def run(self, span_s: float) -> None:
        """Declare the Tasks, spread over so many seconds."""
        for number in range(self._count):
            name = f"m-{number}"
            spec = self._spec(name, number)
            body = {
                "apiVersion": "kilnwork.dev/v1alpha1",
                "kind": "Task",
                "metadata": {"name": name},
                "spec": {**spec, "retry": RETRY},
            }
            found = self._server.insist("POST", TASKS, body, until=time.monotonic() + 120)
            assert found.status in (201, 409), found.document
            time.sleep(self._chance.uniform(0, 2 * span_s / self._count))

    def _spec(self, name: str, number: int) -> dict[str, Any]:
        pause = self._chance.choice((0, 0, 0.2, 1.5))
        before = [each for each, (state, _) in self.expected.items() if state == "Success"]
        kind = self._chance.random()
        if kind < 0.15:
            self.expected[name] = ("Failed", 3)
            return {"command": ["sh", "-c", f"sleep {pause}; exit 3"]}
        if kind < 0.4 and before:
            source = self._chance.choice(before)
            self.expected[name] = ("Success", self.expected[source][1])
            return {
                "command": ["python3", "-S", "pass_on.py"],
                "inputs": [{"name": "given", "task": source}],
            }
        self.expected[name] = ("Success", {"number": number})
        script = f'sleep {pause}; echo \'{{"number": {number}}}\' > "$KILN_OUTPUT"'
        return {"command": ["sh", "-c", script]}

    def check(self, until: float) -> list[str]:
        """Return the Tasks with a wrong outcome, once all have finished or time is up."""
        while True:
            found = self._server.insist("GET", TASKS, until=until)
            tasks = {item["metadata"]["name"]: item for item in found.document["items"]}
            states = {name: _state(tasks.get(name)) for name in self.expected}
            if all(state in FINAL for state in states.values()) or time.monotonic() > until:
                break
            time.sleep(0.25)
        wrong = []
        for name, (state, value) in self.expected.items():
            status = tasks.get(name, {}).get("status", {})
            seen = status.get("exitCode") if state == "Failed" else status.get("result", {})
            seen = seen.get("value") if isinstance(seen, dict) else seen
            if (states[name], seen) != (state, value):
                wrong.append(
                    f"Task {name}: {states[name]} {seen}, expected {state} {value}: {status}"
                )
        return wrong


def _state(task: Any) -> str:
    if not task or task.get("kind") == "Status":  # a 404
        return "missing"
    return str(task.get("status", {}).get("state", "new"))


PASS_ON = """\
import json, os
with open(os.environ["KILN_INPUT"]) as file:
    given = json.load(file)["given"]
with open(os.environ["KILN_OUTPUT"], "w") as file:
    json.dump(given, file)
"""


class Chain:
    """Example 01: each Task creates the next through the API, until the count is reached."""

    def __init__(self, server: up_support.UpServer, api: client.Client, *, limit: int) -> None:
        self._server = server
        self._api = api
        self._limit = limit

    def start(self) -> None:
        """Create its account, its TaskCluster and its first Task."""
        here = Path(__file__).parent.parent.parent.parent / "examples" / "01-counter"
        for name in ("counter.py", "cluster.yaml", "start.yaml"):
            text = (here / name).read_text()
            text = text.replace('limit: "50"', f'limit: "{self._limit}"')
            text = text.replace("replicas: 3", "replicas: 1")
            (self._server.workdir / name).write_text(text)
        self._server.kiln("apply", "-f", "cluster.yaml")
        self._server.kiln("apply", "-f", "start.yaml")

    def check(self, until: float) -> list[str]:
        """Return what is wrong with the chain once the last Task has finished, or time is up."""
        last = f"{TASKS}/task-{self._limit}"
        while True:
            found = self._api.insist("GET", last, until=until)
            if _state(found.document) in FINAL or time.monotonic() > until:
                break
            time.sleep(0.25)
        wrong = []
        for number in range(self._limit + 1):
            found = self._api.insist("GET", f"{TASKS}/task-{number}", until=until + 30)
            if _state(found.document) != "Success":
                status = found.document.get("status", {})
                wrong.append(f"counter's task-{number} is {_state(found.document)}: {status}")
        path = f"{OBJECTS}/task-{self._limit - 1}-output"
        count = (
            self._api.insist("GET", path, until=until + 30).document.get("data", {}).get("count")
        )
        if not wrong and count != str(self._limit):
            wrong.append(f"the counter ended with {count}")
        return wrong


class FileJobs:
    """Uploads of text files whose results are known."""

    def __init__(self, seed: int, files: up_files.UpFiles, *, count: int) -> None:
        self._chance = random.Random(f"files-{seed}")
        self._files = files
        self._count = count
        self._jobs: dict[str, list[str]] = {}
        """Lines by id."""
        self.lost_responses = 0

    def run(self, span_s: float, stop: threading.Event) -> None:
        """Upload the files, spread over so many seconds."""
        for number in range(self._count):
            size = self._chance.choice((10, 800, 4000))
            lines = [f"{at} line of {number}" for at in range(1, size + 1)]
            self._jobs[self._upload(lines)] = lines
            stop.wait(self._chance.uniform(0, 2 * span_s / self._count))

    def _upload(self, lines: list[str]) -> str:
        query = {
            "mapper": "loud:shout",
            "format": "text",
            "itemsPerPart": str(max(5, len(lines) // self._chance.randint(1, 8))),
        }
        content = "".join(f"{line}\n" for line in lines).encode()
        key = str(ids.new_uid())
        until = time.monotonic() + 120
        while True:
            why = ""
            try:
                response = self._files.ask(
                    "POST", "/jobs?" + parse.urlencode(query), content, Idempotency_Key=key
                )
                if response.status == 202:
                    return str(response.json["id"])
                if response.status < 500 and response.status not in (409, 429):
                    raise AssertionError(f"POST /jobs: {response.status} {response.body[:300]!r}")
                why = f"{response.status} {response.body[:300]!r}"
            except client.BROKEN as error:
                why = repr(error)
            self.lost_responses += 1
            if time.monotonic() > until:
                raise TimeoutError(f"POST /jobs: {why}")
            time.sleep(0.1)

    def check(self, until: float) -> list[str]:
        """Return the jobs whose result differs from that of one process."""
        wrong = []
        for job, lines in self._jobs.items():
            document = self._files.ended(job, timeout_s=max(5.0, until - time.monotonic()))
            if document["phase"] != "Succeeded":
                wrong.append(f"file job {job}: {document}")
                continue
            result, bad = _mapped(lines)
            if self._files.result(job) != result:
                wrong.append(f"file job {job}: its result differs")
            reported = self._files.ask("GET", f"/jobs/{job}/errors").body.splitlines()
            if [json.loads(line)["line"] for line in reported] != bad:
                wrong.append(f"file job {job}: other bad records: {reported[:3]}")
        known = self._files.jobs()
        if sorted(known) != sorted(self._jobs):
            wrong.append(f"file jobs {sorted(known)} instead of {sorted(self._jobs)}")
        return wrong


def _mapped(lines: list[str]) -> tuple[bytes, list[int]]:
    """Return the result of MAPPER, and the numbers of bad records."""
    result, bad = b"", []
    for line in lines:
        number = int(line.split()[0])
        if number % 97 == 0:
            bad.append(number)
        elif number % 53:
            result += f"{line.upper()} {number * number}\n".encode()
    return result, bad
