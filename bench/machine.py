"""The machine under measurement: its facts, other users of its CPU, usage of process trees.

Used by every script of this directory, also in scratch environments: the standard library only.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
QUIET_PERCENT = 12.0
"""Of one core, used by others: more spoils a figure; disk write-back alone takes a few."""


def facts() -> dict[str, Any]:
    """Return facts about the machine that a reader needs to judge a figure."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command's name; empty for a process that is
    gone.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def tree(root: int, *, mark: str | None = None) -> set[int]:
    """Return `root`, its descendants, and every process with `mark` (NAME=VALUE) in its
    environment.
    """
    children: dict[int, list[int]] = {}
    found = set()
    for pid in _pids():
        if fields := _stat(pid):
            children.setdefault(int(fields[1]), []).append(pid)
            if mark is not None and _marked(pid, mark.encode()):
                found.add(pid)
    heads = [root, *found]
    while heads:
        pid = heads.pop()
        found.add(pid)
        heads += [child for child in children.get(pid, ()) if child not in found]
    return found


def _marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds that these processes have used, without their children."""
    return sum(int(x) for pid in pids for x in _stat(pid)[11:13]) / TICKS


def memory_mib(pids: Iterable[int]) -> tuple[float, float]:
    """Return resident and proportional memory of these processes; the latter counts shared pages
    once.
    """
    rss = pss = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        sizes = {line.partition(":")[0]: line.split()[1] for line in lines[1:]}
        rss += int(sizes["Rss"])
        pss += int(sizes["Pss"])
    return round(rss / 1024, 1), round(pss / 1024, 1)


class OtherProcesses:
    """CPU use of processes outside this process's tree, in percent of one core.

    Kernel threads, disk write-back among them, count as others. So does a descendant that ended
    without its parent waiting for it.
    """

    def __init__(self) -> None:
        self._since = (0.0, 0.0, 0.0)
        self.start()

    def start(self) -> None:
        """Start counting."""
        self._since = (time.monotonic(), *self._used())

    def percent(self) -> float:
        """Return the use since `start`."""
        began, busy, own = self._since
        now_busy, now_own = self._used()
        seconds = time.monotonic() - began
        ticks = (now_busy - busy) - (now_own - own)
        return round(max(0.0, 100 * ticks / TICKS / seconds), 1) if seconds > 0 else 0.0

    @staticmethod
    def _used() -> tuple[float, float]:
        """Return the ticks of the whole machine, and of our tree with the children it has waited
        for.
        """
        ticks = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        own = 0
        for pid in tree(os.getpid()):
            if fields := _stat(pid):
                own += sum(int(x) for x in fields[11:15])
        return sum(ticks) - ticks[3] - ticks[4], own


class Patience:
    """A budget of seconds to wait for a quiet machine."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Return whether the budget is used up."""
        return time.monotonic() > self._end

    def wait_until_quiet(self, *, for_s: float = 2.0) -> bool:
        """Return True once others have used next to nothing for `for_s`, False when the budget is
        used up.
        """
        while not self.over:
            strangers = OtherProcesses()
            time.sleep(for_s)
            if strangers.percent() < QUIET_PERCENT:
                return True
        return False
