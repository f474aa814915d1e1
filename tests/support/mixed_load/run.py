"""Runs one mixed load on a `kiln up` that is killed and paused, and compares everything at the end.

Used by `tests/faults/campaign.py` and `tests/faults/test_mixed_load.py`.
"""

import functools
import os
import random
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from kilnwork.kit import processes
from support import up_files
from support import up_server as up_support
from support.mixed_load import client, load_watchers, load_writers, work
from support.programs import driver, effects, generator, process_family
from support.programs import run as programs

SPAN_S = float(os.environ.get("KILN_MIXED_SPAN_S", "15"))
"""How long writers write and the server is troubled."""

END_WITHIN_S = 150.0
"""Time limit for all requested work after the faults."""

CLUSTERS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/taskclusters"
WRITERS = 3


def run(seed: int, *, keep: bool = False) -> programs.Report:
    """Run one seed; its directory is kept if something was wrong, or if `keep` is set."""
    return programs.run_seed(seed, prefix="km", keep=keep, create=_Load)


class _Load:
    def __init__(self, seed: int, directory: Path, report: programs.Report) -> None:
        self.seed = seed
        self.directory = directory
        self.report = report
        self.chance = random.Random(f"mixed-{seed}")
        self.program_directory = directory / "p"
        self.program_directory.mkdir()
        work_directory = directory / "w"
        work_directory.mkdir()
        (work_directory / "loud.py").write_text(work.MAPPER)
        (work_directory / "pass_on.py").write_text(work.PASS_ON)
        self.server = up_support.UpServer(
            directory / "data",
            workdir=work_directory,
            slots=3,
            variables={"PYTHONFAULTHANDLER": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        )
        self.family = process_family.ProcessFamily(str(self.server.data))
        self.api = client.Client(self.server.data)
        self.stop = threading.Event()
        self.abort = threading.Event()
        self.workers = client.Workers()
        self.writers = [load_writers.Writer(n, seed, self.api) for n in range(WRITERS)]
        self.watchers = [
            load_watchers.Watcher(kind, f"{seed}-{number}", self.api, bookmarks=number % 2 == 0)
            for number in range(4)
            for kind in load_writers.KINDS
        ]
        self.tasks = work.Tasks(seed, self.api, count=20)
        self.files = work.FileJobs(seed, up_files.UpFiles(self.server), count=4)
        self.chain = work.Chain(self.server, self.api, limit=10)
        self.program: programs.Report | None = None

    def go(self) -> None:
        self.server.start(timeout_s=120)
        self._prepare()
        self._begin()
        self._trouble(time.monotonic() + SPAN_S)
        self.stop.set()
        until = time.monotonic() + END_WITHIN_S
        while self.workers.alive() and not self.workers.failures:
            if time.monotonic() > until:
                raise programs.Wrong("hang", f"{self.workers.alive()} are not done\n{self._dump()}")
            time.sleep(0.1)
        if self.workers.failures:
            error = self.workers.failures[0]
            raise programs.Wrong("error", "".join(traceback.format_exception(error)))
        self._check(until)
        self._down()

    def _prepare(self) -> None:
        made = self.api.request(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            load_writers.DEFINITION,
        )
        assert made.status == 201, made
        until = time.monotonic() + 30
        while self.api.request("GET", load_writers.WIDGET.path).status != 200:
            if time.monotonic() > until:
                raise programs.Wrong("error", "widgets are not served")
            time.sleep(0.05)
        self.chain.start()
        found = self.api.insist("POST", CLUSTERS, self._cluster(), until=time.monotonic() + 30)
        assert found.status == 201, found.document

    def _cluster(self) -> dict[str, Any]:
        """Return the TaskCluster of the program, whose workers know where effects are noted."""
        path = str(programs.effects_of(self.program_directory))
        worker = {"name": "worker", "env": [{"name": effects.VARIABLE, "value": path}]}
        return {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "TaskCluster",
            "metadata": {"name": driver.CLUSTER},
            "spec": {
                "replicas": 1,
                "slotsPerWorker": 2,
                "template": {"spec": {"containers": [worker]}},
            },
        }

    def _begin(self) -> None:
        last = {f"w{number}-{load_writers.LAST}" for number in range(WRITERS)}
        start = self.workers.start
        for watcher in self.watchers:
            start(functools.partial(watcher.run, last, self.abort), watcher.name)
        for number, writer in enumerate(self.writers):
            start(functools.partial(writer.run, self.stop), f"writer {number}")
        start(functools.partial(self.tasks.run, SPAN_S), "tasks")
        start(functools.partial(self.files.run, SPAN_S, self.stop), "file jobs")
        start(self._run_program, "program")

    def _run_program(self) -> None:
        program = generator.program(self.seed, served=True)
        self.program = programs.run_in(self.program_directory, program, server=self.server.data)

    # trouble

    def _trouble(self, until: float) -> None:
        """Kill and pause at random until `until`; the server runs afterwards."""
        kinds = {"kill server": 5, "pause server": 2, "kill agent": 1, "kill slot": 2}
        kinds |= {"kill zygote": 1, "pause agent": 1}
        while True:
            pause_s = self.chance.uniform(0.5, 6.0)
            time.sleep(max(0.0, min(pause_s, until - time.monotonic())))
            if time.monotonic() >= until or self.workers.failures:
                return
            what = self.chance.choices(list(kinds), list(kinds.values()))[0]
            self.report.hits.append(what)
            if what == "kill server":
                self.server.kill()
                time.sleep(self.chance.choice((0, 0.3, 1.5, 1.5, 9.5)))
                self.server.start(timeout_s=120)
            elif what == "pause server":
                assert self.server.process is not None
                self._pause(self.server.process.pid)
            else:
                self._hit(*what.split())

    def _hit(self, act: str, kind: str) -> None:
        victims = self.family.of_kind(kind)
        if not victims:
            return
        pid = self.chance.choice(victims)
        if act == "pause":
            self._pause(pid)
        else:
            processes.signal_all([pid], signal.SIGKILL)

    def _pause(self, pid: int) -> None:
        processes.signal_all([pid], signal.SIGSTOP)
        try:
            time.sleep(self.chance.uniform(0.1, 3.0))
        finally:
            processes.signal_all([pid], signal.SIGCONT)

    # checks

    def _check(self, until: float) -> None:
        assert self.program is not None
        if self.program.kind != "ok":
            raise programs.Wrong(self.program.kind, f"the program: {self.program.text}")
        missed = [p for w in self.watchers for p in load_watchers.problems(w, self.writers)]
        if missed:
            raise programs.Wrong("lost", "\n".join(missed[:20]))
        self._check_writes(until)
        wrong = self.tasks.check(until) + self.chain.check(until) + self.files.check(until)
        if wrong:
            raise programs.Wrong("wrong", "\n".join(wrong[:20]) + "\n" + self._dump())
        writes = sum(len(log) for writer in self.writers for log in writer.log.values())
        watches = sum(watcher.watches for watcher in self.watchers)
        marks = sum(watcher.marks for watcher in self.watchers)
        lists = sum(len(watcher.segments) for watcher in self.watchers)
        unheard = sum(writer.unheard for writer in self.writers)
        self.report.hits.append(
            f"writes={writes} unheard={unheard} watches={watches} bookmarks={marks} lists={lists}"
        )

    def _check_writes(self, until: float) -> None:
        """Check that each object has the state that was written last."""
        for kind in load_writers.KINDS:
            found = self.api.insist("GET", kind.path, until=until + 30).document["items"]
            seen = {
                item["metadata"]["name"]: item["data"]["token"]
                for item in found
                if item["metadata"]["name"].startswith("w")
            }
            wanted = {
                name: log[-1].token
                for writer in self.writers
                for (each, name), log in writer.log.items()
                if each == kind and log and log[-1].action != "DELETED"
            }
            if seen != wanted:
                differ = set(seen.items()) ^ set(wanted.items())
                raise programs.Wrong("lost", f"{kind.name}: {sorted(differ)[:10]}")

    def _down(self) -> None:
        done = self.server.kiln("down", "--data", str(self.server.data), check=False)
        assert self.server.process is not None
        if done.returncode or self.server.process.wait(30) != 0:
            raise programs.Wrong("error", f"kiln down: {done.stdout}{done.stderr}\n{self._log()}")
        until = time.monotonic() + programs.GONE_WITHIN_S
        while left := self.server.leftovers():
            if time.monotonic() > until:
                raise programs.Wrong("left", f"{left}")
            time.sleep(0.1)

    def _dump(self) -> str:
        """Return the server's log with the stacks of its threads; this kills the server."""
        process = self.server.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGABRT)
            time.sleep(1.0)
        return self._log()

    def _log(self) -> str:
        return self.server.log.read_text(errors="replace")[-6000:]

    def destroy(self) -> None:
        """Kill all processes."""
        self.stop.set()
        self.abort.set()
        self.workers.join(time.monotonic() + 5)
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
