"""A driver with its home on this machine, the kills that hit them, and the checks afterwards."""

import collections
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kilnwork.kit import data_directories, ids, processes
from support import waiting

TESTS = Path(__file__).parent.parent
KINDS = ("driver", "dispatcher", "agent", "zygote", "slot")
ALL = "all"
"""Everything at once, as when the machine is switched off."""


class FaultHome:
    """One data directory. Every process started for it has `mark` in its environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes = directory / "notes"
        self.notes.touch()
        self.journal = directory / "home" / "journal.db"
        self.mark = f"KILN_FAULT_MARK={ids.new_uid()}"
        self.log = directory / "driver.log"
        self.out = directory / "driver.out"
        self.driver: subprocess.Popen[bytes] | None = None
        self._arguments: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        notes = str(self.notes)
        return {**os.environ, name: value, "PYTHONPATH": path, "KILN_FAULT_NOTES": notes}

    def start(self, *arguments: str, module: str = "support.fault_driver") -> None:
        """Start a driver."""
        self._arguments = ("-m", module, *arguments)
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as log, self.out.open("wb") as out:
            self.driver = subprocess.Popen(
                [sys.executable, *self._arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=self.directory,
            )

    def noted(self) -> list[tuple[str, int, int]]:
        """Return (task, run, attempt) for each start of a task's code."""
        whole, _, _ = self.notes.read_text().rpartition("\n")  # a line may be half there
        rows = [line.split() for line in whole.splitlines()]
        return [(task, int(run), int(attempt)) for task, run, attempt in rows]

    def pids(self, kind: str) -> list[int]:
        if kind == "driver":
            return [self.driver.pid] if self.driver and self.driver.poll() is None else []
        stats, found = processes.read_all(), collections.defaultdict(list)
        ours = processes.find_members(None, marker=self.mark)
        commands = {pid: _command(pid) for pid in ours}
        workers = {pid for pid, command in commands.items() if "kilnwork.worker" in command}
        for pid in sorted(ours & stats.keys()):
            parent = stats[pid].parent
            if "kilnwork.dispatch" in commands[pid]:
                found["dispatcher"].append(pid)
            elif pid in workers and parent not in workers:
                found["agent"].append(pid)
            elif pid in workers:
                grandparent = stats[parent].parent if parent in stats else 0
                found["slot" if grandparent in workers else "zygote"].append(pid)
        return found[kind]

    def kill_one(self, kind: str, *, pick: int = 0) -> bool:
        """Kill one process of that kind, and restart the driver if it was the one; return False if
        there is none.
        """
        if kind == ALL:
            processes.signal_all(processes.find_members(None, marker=self.mark), signal.SIGKILL)
        elif found := self.pids(kind):
            processes.signal_all([found[pick % len(found)]], signal.SIGKILL)
        else:
            return False
        if kind in ("driver", ALL):
            assert self.driver is not None
            self.driver.wait()
            self._start()
        return True

    def result(self, *, timeout_s: float = 60.0) -> Any:
        """Wait until the driver exits with 0; return what it printed."""
        assert self.driver is not None
        try:
            code = self.driver.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no result within {timeout_s} s\n{self.story()}") from None
        assert code == 0, f"the driver ended with {code}\n{self.story()}"
        return json.loads(self.out.read_text().splitlines()[-1])

    def story(self) -> str:
        """Return processes, logs and journal rows, for a failure message."""
        logs = [self.log, *sorted((self.directory / "home").glob("*.log"))]
        texts = [f"--- {log.name}:\n{log.read_text()[-3000:]}" for log in logs if log.exists()]
        unfinished: list[object] = []
        try:
            unfinished += self.rows("SELECT * FROM task WHERE state NOT IN ('Success') LIMIT 10")
        except sqlite3.Error as error:  # it is being created, or does not exist
            unfinished.append(f"journal: {error}")
        return "\n".join([*texts, *map(str, unfinished)])

    def rows(self, question: str, *values: object) -> list[dict[str, Any]]:
        """Return rows of the journal, read without the dispatcher."""
        database = sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in database.execute(question, values)]
        finally:
            database.close()

    def wait_until_gone(self, *, timeout_s: float = 30.0) -> None:
        """Wait until no process of this directory is left."""
        waiting.wait_until(
            lambda: not processes.find_members(None, marker=self.mark),
            what=f"all processes end\n{self.story()}",
            timeout_s=timeout_s,
            every_s=0.1,
        )

    def destroy(self) -> None:
        """Kill all processes of this directory."""
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()
        deadline = time.monotonic() + 10
        while processes.find_members(None, marker=self.mark) and time.monotonic() < deadline:
            processes.kill_members(None, marker=self.mark)
            time.sleep(0.05)
        shutil.rmtree(data_directories.runtime_dir(self.directory / "home"), ignore_errors=True)

    def assert_sound(self, *, tasks: int, losses: int, failures: int = 0) -> None:
        """Check the journal's invariants, and that the notes of tasks agree with it.

        `tasks`: the number of tasks, all of which succeeded: none lost, none run twice. `losses`,
        `failures`: the number of attempts that each may have cost.
        """
        assert [row["integrity_check"] for row in self.rows("PRAGMA integrity_check")] == ["ok"]
        found = self.rows("SELECT * FROM task")
        unlike = [row for row in found if row["state"] != "Success" or row["finished"] is None]
        assert unlike == [], self.story()
        assert len(found) == tasks, f"{len(found)} tasks\n{self.story()}"
        assert len({row["task"] for row in found}) == tasks
        keys = collections.Counter((row["parent"], row["child_key"]) for row in found)
        assert [key for key, count in keys.items() if count > 1] == []
        past = collections.defaultdict(list)
        for row in self.rows("SELECT * FROM past_attempt ORDER BY task_row, attempt"):
            past[row["task_row"]].append(row["attempt"])
        ran = collections.Counter(self.noted())
        assert [note for note, count in ran.items() if count > 1] == [], "an attempt ran twice"
        for row in found:
            assert row["losses"] <= losses
            assert row["failures"] <= failures
            task = str(ids.task_text(ids.TaskId(row["task"])))
            begun = {attempt for id_, run, attempt in ran if (id_, run) == (task, row["run"])}
            self._assert_numbered(row, begun, past[row["row"]])

    def _assert_numbered(self, row: dict[str, Any], begun: set[int], past: list[int]) -> None:
        """Check that the last attempt succeeded and that each earlier one had finished or was taken
        back unstarted.
        """
        last = row["attempt"]
        assert max(begun, default=0) == last, f"attempts {begun} began, {last} succeeded"
        assert len(past) == len(set(past))
        assert set(past) <= set(range(1, last)), f"attempts {past} are over, {last} succeeded"
        assert begun - {last} <= set(past), f"of {begun} only {past} are known to be over"
        counted = row["losses"] + row["failures"] + row["excused"]
        assert counted <= len(past), f"{counted} attempts count, {past} are over"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
