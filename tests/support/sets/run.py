"""Runs one SyncSet of 64 shards under the faults of a seed, and compares it with one process.

Used by `tests/faults/campaign.py` and `tests/faults/test_sync_sets.py`. The server, workers, slots
and the agent of the pond are killed, unread blobs are damaged, and the source is changed after it
was pinned.
"""

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from kilnwork import testing
from kilnwork.jobs.flows import run_types
from kilnwork.kit import processes
from support import ponds
from support import up_server as up_support
from support.mixed_load import client
from support.programs import effects, process_family
from support.programs import run as programs
from support.sets import journal

SHARDS = 64
WORKERS, SLOTS = 2, 2
PAUSE_S = 0.3
"""What a shard takes at least: 64 of them on four slots, 5 s."""

END_WITHIN_S = 120.0
"""Time limit for the flow after the last fault."""

SET, POND, SNAPSHOT = "risk", "lake", "trades"
FINAL = ("Succeeded", "Failed", "Killed", "AdmissionError")
TASK = f"{SET}-g1-"
"""How names of its tasks begin."""

_KINDS = "/apis/kilnwork.dev/v1alpha1/namespaces/default"
_ONE_AT_A_TIME = threading.Lock()
"""Lock: `run_set` sets the data directory in the environment of this process."""


def run(seed: int, *, keep: bool = False) -> programs.Report:
    """Run one seed; its directory is kept if something was wrong, or if `keep` is set."""
    return programs.run_seed(seed, prefix="ks", keep=keep, create=_Run)


class _Run:
    def __init__(self, seed: int, directory: Path, report: programs.Report) -> None:
        self.report = report
        self.chance = random.Random(f"sets-{seed}")
        self.files = {
            f"{number % 7}/t{number:02}.bin": self.chance.randbytes(
                self.chance.randrange(1, 60_000)
            )
            for number in range(SHARDS)
        }
        self.lake = directory / "lake"
        self.effects = directory / "effects"
        (directory / "w").mkdir()
        self.server = up_support.UpServer(directory / "data", workdir=directory / "w")
        self.family = process_family.ProcessFamily(str(self.server.data))
        self.api = client.Client(self.server.data)
        self.committed: dict[str, journal.Row] = {}
        """What was in the journal when the server was dead."""
        self.rewritten = False
        self.spec = self._spec()
        data = self.spec["data"]
        words = self.spec["backend"], data["pond"]["order"], data["snapshots"][0]["access"]
        report.hits.append(" ".join(words))

    def go(self) -> None:
        ponds.write_files(self.lake, self.files)
        ponds.write_files(self.lake.parent / "as-it-was", self.files)
        self.server.start(timeout_s=120)
        self._make("dataponds", POND, {"sources": [{"name": "lake", "uri": self.lake.as_uri()}]})
        if self.chance.random() < 0.5:
            self._damage_what_is_there()
        self._make("syncsets", SET, self.spec)
        self._trouble()
        status = self._until_over(time.monotonic() + END_WITHIN_S)
        self._check_result(status)
        self._remove()
        self._down()
        self._check_attempts()

    def _spec(self) -> dict[str, Any]:
        worker = {
            "name": "worker",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            "env": [
                {"name": "KILN_PYTHONPATH", "value": str(programs.TESTS)},
                {"name": effects.VARIABLE, "value": str(self.effects)},
            ],
        }
        retry = {"maxAttempts": 5, "maxLosses": 50, "delaySeconds": 0}
        each = {
            "each": "shard",
            "of": f"data.{SNAPSHOT}",
            "call": "support.sets.work:price",
            "with": {"shard": "${ shard }", "pause_s": PAUSE_S},
            "retry": retry,
        }
        join = {
            "join": "price",
            "call": "support.sets.work:total",
            "with": {"parts": "${ price.results }", "digest": f"${{ data.{SNAPSHOT}.digest }}"},
            "retry": retry,
        }
        group = {
            "name": "worker",
            "replicas": WORKERS,
            "slotsPerWorker": SLOTS,
            "template": {"spec": {"containers": [worker]}},
        }
        snapshot = {
            "name": SNAPSHOT,
            "from": {"source": "lake"},
            "shard": {"by": "files"},
            "access": self.chance.choice(("read", "read", "copy")),
        }
        order = self.chance.choice(("lead", "follow"))
        return {
            "backend": self.chance.choice(("local", "pods")),
            "resources": {"groups": [group]},
            "data": {"pond": {"name": POND, "order": order}, "snapshots": [snapshot]},
            "flow": {"do": [{"price": each}, {"total": join}]},
        }

    # faults

    def _damage_what_is_there(self) -> None:
        """Fetch the data into the pond before the set exists, and damage some of it."""
        fetch = ("--fetch", "lake", "--lease", "before")
        self.server.kiln("data", POND, *fetch, timeout_s=120)
        for _ in range(self.chance.randrange(1, 4)):
            self._damage(self.chance.choice(sorted(self.files)))

    def _damage(self, path: str) -> None:
        """Flip a byte of the blob of a file, or truncate it."""
        name = ponds.digest_of(self.files[path]).removeprefix("sha256:")
        blob = self.server.data / f"ponds/default/{POND}/blobs/{name[:2]}/{name}"
        try:
            file = blob.open("r+b")
        except FileNotFoundError:
            return
        with file:
            size = file.seek(0, os.SEEK_END)
            at = self.chance.randrange(max(size, 1))
            if self.chance.random() < 0.5 or not size:
                file.truncate(at)
            else:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ (1 << self.chance.randrange(8))]))
        self.report.hits.append(f"damage {path}")

    def _trouble(self) -> None:
        kinds = {"server": 3, "agent": 2, "slot": 2, "pond": 2, "damage": 1, "rewrite": 1}
        for _ in range(self.chance.randrange(3, 9)):
            time.sleep(self.chance.uniform(0.0, 2.0))
            if self._status().get("phase") in FINAL:
                return
            what = self.chance.choices(list(kinds), list(kinds.values()))[0]
            if what == "server":
                self._kill_server()
            elif what == "rewrite":
                self._rewrite()
            elif what == "damage":
                self._damage_what_was_read()
            else:
                self._kill(what)

    def _kill_server(self) -> None:
        self.server.kill()
        self.committed |= journal.succeeded(self.server.data, TASK)
        self.report.hits.append(f"server at {len(self.committed)}")
        time.sleep(self.chance.choice((0.0, 0.0, 0.5, 3.0)))
        self.server.start(timeout_s=120)

    def _kill(self, kind: str) -> None:
        if kind == "pond":
            found = [
                pid for pid, text in self.server.leftovers().items() if "kilnwork.pond" in text
            ]
        else:
            found = self.family.of_kind(kind)
        if found:
            self.report.hits.append(kind)
            processes.signal_all([self.chance.choice(found)], signal.SIGKILL)

    def _rewrite(self) -> None:
        """Replace the content of all files by other content of the same size, once they are
        pinned.
        """
        pinned = self._status().get("snapshots", {}).get(SNAPSHOT, {}).get("digest")
        if pinned and not self.rewritten:
            other = {path: self.chance.randbytes(len(was)) for path, was in self.files.items()}
            ponds.write_files(self.lake, other)
            self.rewritten = True
            self.report.hits.append("rewrite")

    def _damage_what_was_read(self) -> None:
        """Damage a blob whose shard is committed, beside a server that is being killed."""
        if self.committed:
            shards = [name for name in sorted(self.committed) if name.startswith("price-")]
            number = int(self.chance.choice(shards).removeprefix("price-"))
            self._damage(sorted(self.files)[number])

    # checks

    def _until_over(self, until: float) -> dict[str, Any]:
        while (found := self._status()).get("phase") not in FINAL:
            if time.monotonic() > until:
                why = self.server.kiln("why", f"syncset/{SET}", check=False).stdout
                raise programs.Wrong("hang", f"{why}\n{json.dumps(found)}\n{self._log()}")
            time.sleep(0.1)
        return found

    def _check_result(self, status: dict[str, Any]) -> None:
        facts = f"{json.dumps(status)[:4000]}\n{self._log()}"
        if status["phase"] != "Succeeded":
            raise programs.Wrong("wrong", facts)
        found = self.server.kiln("result", f"syncset/{SET}").stdout
        wanted = json.dumps(self._alone().value, indent=2) + "\n"
        if json.dumps(json.loads(found)) != json.dumps(json.loads(wanted)):
            raise programs.Wrong("wrong", f"result\n{found}\nand not\n{wanted}\n{facts}")
        counts = status["flow"]["steps"]["price"]
        if (counts["total"], counts["succeeded"]) != (SHARDS, SHARDS):
            raise programs.Wrong("wrong", facts)

    def _alone(self) -> run_types.FlowRunView:
        """Run the same flow in this process, on the pinned data."""
        data = {SNAPSHOT: self.lake.parent / "as-it-was"}
        with _ONE_AT_A_TIME:
            return testing.run_set({"spec": self.spec}, data=data)

    def _check_attempts(self) -> None:
        found = journal.succeeded(self.server.data, TASK)
        names = {f"price-{number}" for number in range(SHARDS)} | {"total"}
        starts = [(one.node, one.attempt) for one in effects.read(self.effects)]
        wrong = journal.problems(found, names, committed=self.committed, starts=starts)
        if wrong:
            raise programs.Wrong("twice", "\n".join(wrong))
        self.report.hits.append(f"starts={len(starts)} committed={len(self.committed)}")

    def _remove(self) -> None:
        """Delete the set and check that everything made for it is removed, in the pond too."""
        until = time.monotonic() + 60
        self.api.insist("DELETE", f"{_KINDS}/syncsets/{SET}", until=until)
        runs = self.server.data / f"ponds/default/{POND}/runs/default"
        while left := [str(path) for path in runs.glob(f"{SET}-*")] + self._clusters():
            if time.monotonic() > until:
                raise programs.Wrong("left", f"{left}\n{self._log()}")
            time.sleep(0.1)

    def _clusters(self) -> list[str]:
        found = self.api.insist("GET", f"{_KINDS}/taskclusters", until=time.monotonic() + 30)
        names = [one["metadata"]["name"] for one in found.document["items"]]
        return [name for name in names if name.startswith(SET)]

    def _down(self) -> None:
        if (code := self.server.stop(timeout_s=60)) != 0:
            raise programs.Wrong("error", f"kiln up ended with {code}\n{self._log()}")
        until = time.monotonic() + programs.GONE_WITHIN_S
        while left := self.server.leftovers():
            if time.monotonic() > until:
                raise programs.Wrong("left", f"{left}")
            time.sleep(0.1)

    def _make(self, plural: str, name: str, spec: dict[str, Any]) -> None:
        kind = {"dataponds": "DataPond", "syncsets": "SyncSet"}[plural]
        body = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        made = self.api.insist("POST", f"{_KINDS}/{plural}", body, until=time.monotonic() + 30)
        if made.status != 201:
            raise programs.Wrong("error", f"{made}")

    def _status(self) -> dict[str, Any]:
        path = f"{_KINDS}/syncsets/{SET}"
        found = self.api.insist("GET", path, until=time.monotonic() + 30).document
        status: dict[str, Any] = found.get("status") or {}
        return status

    def _log(self) -> str:
        return self.server.log.read_text(errors="replace")[-6000:]

    def destroy(self) -> None:
        """Kill all processes."""
        self.api.close()
        process = self.server.process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        for _ in range(100):
            left = self.server.leftovers()
            if not left:
                break
            processes.signal_all(left, signal.SIGKILL)
            time.sleep(0.05)
