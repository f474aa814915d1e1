"""A file with all kinds of records, mappers that note their starts, and kills of the processes that
map it.
"""

import contextlib
import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kilnwork.kit import processes
from support import up_files, waiting
from support import up_server as up_support

KINDS = ("server", "shim", "agent", "zygote", "slot", "working")
"""Kinds of victims. `working`: the process that has begun the newest record."""

ALL = "all"
"""Everything at once, as when the machine is switched off."""

MAPPERS = '''
import json
import os
import time

def note(n):
    trace = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(trace, b"%d %d\\n" % (os.getpid(), n))
    os.close(trace)

def square(record):
    """Leaves a trace of each time; 5 of 17 it refuses, 3 of 11 it drops."""
    n = record["n"]
    note(n)
    time.sleep(DELAY_S)
    wait(record)
    if n % 17 == 5:
        raise ValueError("five")
    return None if n % 11 == 3 else {"n": n, "square": n * n}

def wait(record):
    while "gate" in record and not os.path.exists(record["gate"]):
        time.sleep(0.01)

def gated(record):
    """Waits for the file that the record names."""
    note(record["n"])
    wait(record)
    return {"n": record["n"]}

def crashing(record):
    """Takes its process along."""
    note(record["n"])
    os._exit(7)

def numbered(results):
    """A reducer whose lines depend on all that come before."""
    total = 0
    for result in results:
        total += result["n"]
        if result["n"] % 8 == 0:
            note(-1)
            time.sleep(DELAY_S)
        yield {"n": result["n"], "total": total}
'''


def content(chance: random.Random, lines: int) -> bytes:
    """Return records, blank lines and lines that are not JSON, with LF and CR LF; the last without
    a line end.
    """
    made = []
    for n in range(lines):
        kind = chance.random()
        line = b"" if kind < 0.03 else b"{oh" if kind < 0.06 else b'{"n":%d}' % n
        made.append(line + (b"\r\n" if chance.random() < 0.1 else b"\n"))
    return b"".join(made) + b'{"n":%d}' % lines


def held(data: bytes, gate: Path, *numbers: int) -> bytes:
    """Return the same data with records that wait for a file `gate`: no mapper passes them
    before.
    """
    for n in numbers:
        record = b'{"n":%d' % n
        waits = b'%b,"gate":%b}' % (record, json.dumps(str(gate)).encode())
        data = data.replace(record + b"}", waits)
    return data


def by_one_process(data: bytes, *, reduced: bool) -> up_files.ExpectedResult:
    out: list[dict[str, int]] = []
    bad: list[int] = []
    skipped = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix(b"\r")
        if not text:
            skipped += 1
        elif text == b"{oh" or (n := int(json.loads(text)["n"])) % 17 == 5:
            bad.append(number)
        elif n % 11 == 3:
            skipped += 1
        else:
            out.append({"n": n, "square": n * n})
    if reduced:
        total = 0
        for at, one in enumerate(out):
            total += one["n"]
            out[at] = {"n": one["n"], "total": total}
    result = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in out)
    return up_files.ExpectedResult(result, bad, len(lines), skipped)


class FaultFiles(up_files.UpFiles):
    """A server whose workers import the mappers as module `fault_mappers`."""

    def __init__(self, directory: Path, *, delay_s: float) -> None:
        super().__init__(up_support.UpServer(directory / "data", workdir=directory, slots=2))
        self.notes = directory / "notes"
        self.notes.touch()
        up_files.write_mappers(
            directory, "fault_mappers", MAPPERS, NOTES=str(self.notes), DELAY_S=delay_s
        )

    def forget_notes(self) -> None:
        self.notes.write_text("")

    def noted(self) -> list[tuple[int, int]]:
        """Return (pid, number) for each start of a record; the number is -1 for the reducer."""
        whole, _, _ = self.notes.read_text().rpartition("\n")  # a line may be half there
        rows = (line.split() for line in whole.splitlines())
        return [(int(pid), int(n)) for pid, n in rows]

    def pids(self, kind: str) -> list[int]:
        commands = self.server.leftovers()
        if kind == "server":
            assert self.server.process is not None
            return [self.server.process.pid] if self.server.process.poll() is None else []
        if kind == "shim":
            return [pid for pid, command in commands.items() if "node.shim" in command]
        if kind == "working":
            seen = {pid: None for pid, _ in reversed(self.noted())}
            return [pid for pid in seen if pid in commands][:1]
        stats = processes.read_all()
        workers = {pid for pid, text in commands.items() if "kilnwork.worker" in text}
        found = []
        for pid in sorted(workers & stats.keys()):
            above = stats[pid].parent
            grand = stats[above].parent if above in stats else 0
            depth = (above in workers) + (above in workers and grand in workers)
            if ("agent", "zygote", "slot")[depth] == kind:
                found.append(pid)
        return found

    def kill_one(self, kind: str, chance: random.Random) -> str:
        """Kill one process of that kind (a server is restarted after a moment); return what was
        done.
        """
        found = list(self.server.leftovers()) if kind == ALL else self.pids(kind)
        if not found:
            return f"{kind} (none)"
        if kind == ALL:
            processes.signal_all(found, signal.SIGKILL)
        else:
            processes.signal_all([chance.choice(found)], signal.SIGKILL)
        if kind in ("server", ALL):
            self.server.kill()
            time.sleep(chance.uniform(0, 0.4))
            self.server.start(timeout_s=60)
        return kind

    def wait_for_notes(self, count: int, job: str) -> None:
        """Wait until so many records have begun, or the job has finished."""
        waiting.wait_until(
            lambda: len(self.noted()) >= count or self.over(job),
            what=f"{count} records have begun",
            timeout_s=60,
            every_s=0.01,
        )

    def kill_at(self, moments: list[int], chance: random.Random, job: str) -> list[str]:
        """Kill once for each moment, when that many records have begun; return what was done."""
        blows: list[str] = []
        for moment in moments:
            self.wait_for_notes(moment, job)
            time.sleep(chance.uniform(0, 0.03))
            blows.append(self.kill_one(chance.choice([*KINDS, ALL]), chance))
        return blows

    def over(self, job: str) -> bool:
        """Return whether the job has finished."""
        return str(self.document(job)["phase"]) in up_files.FINAL

    def story(self, job: str) -> str:
        """Return processes, logs and documents, for a failure message."""
        found: Any = self.ask("GET", f"/jobs/{job}").body
        return f"{found!r}\n{self.server.log.read_text()[-6000:]}"

    def stop(self) -> None:
        """Stop the server and check that no process is left."""
        assert self.server.stop() == 0, self.server.log.read_text()[-4000:]
        waiting.wait_until(
            lambda: not self.server.leftovers(), what="all processes are gone", timeout_s=15
        )

    def destroy(self) -> None:
        """Kill all processes."""
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.kill()

        def gone() -> bool:
            left = self.server.leftovers()
            processes.signal_all(left, signal.SIGKILL)
            return not left

        waiting.wait_until(gone, what="all processes are gone")


@contextlib.contextmanager
def running(directory: Path, *, delay_s: float) -> Iterator[FaultFiles]:
    """Run one server for many jobs; at the end their files must be tidy and no process may be
    left.
    """
    made = FaultFiles(directory, delay_s=delay_s)
    try:
        made.server.start()
        yield made
        made.stop()
        made.assert_tidy(*made.seen)
    finally:
        made.destroy()
