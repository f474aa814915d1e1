"""Search and killing of the processes that a command leaves behind, with proof that none is left.

Used by `attempt`, and by `zygote_supervisor` for the processes of a dead zygote's slots. Since the
worker is a subreaper, every process that a task ever started is below it. Once the command has
exited, the remaining processes are orphans, which are children of the worker that no code watches,
or are below orphans. The attempt of an orphan is found by the marker in its initial environment,
otherwise by its session. An orphan that hides both is counted to the attempt that ends, if it is
younger than that attempt: it is better to kill one daemon too many than to report a task as ended
that still runs.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kilnwork.kit import processes
from kilnwork.worker import reaper

log = logging.getLogger(__name__)

MARKER = "KILN_ATTEMPT_ID"
"""Environment variable that the command of an attempt starts with, and its children by
inheritance.
"""

PATIENCE_S = 10.0
"""Seconds after which a killed process that still exists counts as stuck in the kernel: then there
is no proof.
"""

_FIRST_PAUSE_S = 0.0005
_MAX_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class RootProcess:
    """The first process of an attempt, which leads its session; or a zygote.

    `started`: its start time in clock ticks.
    """

    pid: int
    started: int
    marker: str


class Orphans:
    """Register of the root processes of all attempts, which kills the processes that an attempt
    leaves behind.
    """

    def __init__(self, waiter: reaper.Reaper) -> None:
        self._reaper = waiter
        self._roots: dict[str, RootProcess] = {}
        self._abandoned: set[tuple[int, int]] = set()

    def register(self, pid: int, *, marker: str) -> RootProcess:
        """Register the root process of an attempt, just started with `MARKER=marker` in its
        environment; or a zygote, whose `marker` is in no environment.
        """
        # Without a start time, every orphan without a marker is counted to this attempt.
        identity = processes.identify(pid)
        root = RootProcess(pid=pid, started=identity.started if identity else 0, marker=marker)
        self._roots[marker] = root
        return root

    async def clear(self, root: RootProcess) -> bool:
        """Kill the processes that an attempt has left behind; return True as proof that none is
        left.

        Call after `root` was waited for. The proof: if any process of the attempt lived, its eldest
        ancestor would be an unwatched child of this process, and a child stays in /proc until it is
        waited for, even if it exits meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        pause_s = _FIRST_PAUSE_S
        try:
            # Sweep first: zombies are listed in /proc until they are waited for.
            while not self._reaper.sweep():
                stats = processes.read_all()
                orphans = self._left_by(root, stats)
                if not orphans:
                    break
                if loop.time() > deadline:
                    self._abandon(orphans, stats)
                    return False
                # Kill the whole tree at once: otherwise its levels would become orphans one after
                # the other.
                left = orphans | processes.descendants_in(orphans, stats)
                _kill(left, groups=self._groups({stats[pid].group for pid in left}, root))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            return True
        finally:
            del self._roots[root.marker]

    def _left_by(self, root: RootProcess, stats: Mapping[int, processes.Stat]) -> set[int]:
        watched = self._reaper.watched
        return {
            pid
            for pid, stat in stats.items()
            # A process with another parent belongs to a running command, or hangs below an orphan.
            if stat.parent == os.getpid()
            and pid not in watched
            and (pid, stat.started) not in self._abandoned
            and self._belongs(pid, stat, root)
        }

    def _groups(self, found: set[int], root: RootProcess) -> set[int]:
        """Return the process groups to kill: a signal to a group also reaches a process forked a
        moment ago.

        A group never spans sessions, so it contains no process of another attempt.
        """
        # Every root process leads the group that has its pid as number.
        others = {other.pid for other in self._roots.values() if other is not root}
        return found - others - {os.getpgrp()}

    def _abandon(self, orphans: set[int], stats: Mapping[int, processes.Stat]) -> None:
        self._abandoned |= {(pid, stats[pid].started) for pid in orphans}
        log.error("processes of an attempt cannot be killed", extra={"pids": sorted(orphans)})

    def _belongs(self, pid: int, stat: processes.Stat, root: RootProcess) -> bool:
        marker = _marker_of(pid)
        if marker == root.marker:
            return True
        # An attempt that has ended already has left it: it is killed now.
        if marker is not None:
            return marker not in self._roots
        sessions = {other.pid for other in self._roots.values() if other is not root}
        if stat.session in sessions:
            return False
        # The kernel does not reuse the number of a session while it has a process.
        return stat.session == root.pid or stat.started >= root.started


def _marker_of(pid: int) -> str | None:
    try:
        # The environment at exec: unsetenv(3) does not change it.
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    start = f"{MARKER}=".encode()
    for entry in environment.split(b"\0"):
        if entry.startswith(start):
            return entry[len(start) :].decode(errors="replace")
    return None


def _kill(pids: Iterable[int], *, groups: Iterable[int]) -> None:
    for target in (*(-group for group in groups), *pids):
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError:
            log.warning("a process of another user cannot be killed", extra={"pid": target})
