"""The processes of one run, found by their environment, with their kinds.

Used by `run` to kill one of a kind. Reads a process's environment only once, so that it can be
called often.
"""

import contextlib
import os
import signal
from pathlib import Path

from kilnwork.kit import processes

MARK = "KILN_PROGRAM_MARK"


class ProcessFamily:
    """All processes whose initial environment has a text that no others have."""

    def __init__(self, needle: str) -> None:
        self._needle = needle.encode()
        self._seen: set[int] = set()
        self._ours: dict[int, processes.ProcessId] = {}

    def members(self) -> dict[int, str]:
        """Return the kinds of live processes by pid.

        A kind is driver, dispatcher, agent, zygote, slot or other.
        """
        self._look()
        self._ours = {pid: known for pid, known in self._ours.items() if known.alive()}
        commands = {pid: _command(pid) for pid in self._ours}
        found = {}
        for pid, command in commands.items():
            depth, at = 0, _parent(pid)
            while at in commands and _is_worker(commands[at]):
                depth, at = depth + 1, _parent(at)
            found[pid] = _kind(command, depth)
        return found

    def of_kind(self, kind: str) -> list[int]:
        return sorted(pid for pid, each in self.members().items() if each == kind)

    def destroy(self) -> None:
        """Kill all processes."""
        for _ in range(100):
            found = self.members()
            if not found:
                return
            processes.signal_all(found, signal.SIGKILL)

    def _look(self) -> None:
        """Read the environment of processes that are new since the last time."""
        there = set(processes.all_pids())
        new = there - self._seen
        self._seen = there
        for pid in new - {os.getpid()}:
            identity = processes.identify(pid)
            if identity is None or not (environment := _read(pid, "environ")):
                self._seen.discard(pid)  # between fork and exec, or a zombie: look again
            elif self._needle in environment:
                self._ours[pid] = identity


def _parent(pid: int) -> int:
    words = _read(pid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if words else 0


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _command(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _is_worker(command: bytes) -> bool:
    return b"kilnwork.worker" in command


def _kind(command: bytes, depth: int) -> str:
    """Return the kind of a process; `depth` is the number of workers above it."""
    if b"kilnwork.dispatch" in command:
        return "dispatcher"
    if b"support.programs.driver" in command:
        return "driver"
    if _is_worker(command):
        return ("agent", "zygote", "slot")[min(depth, 2)]
    return "other"
