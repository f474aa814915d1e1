"""The processes of one run, found by the mark in their environment, and what each of them is.

Used by `run` to kill one of a kind. Looks at a process's environment once, so that it can look
often.
"""

import contextlib
import os
import signal
from pathlib import Path

from kilnwork.kit import processes

MARK = "KILN_PROGRAM_MARK"


class Family:
    """All that was started with this mark."""

    def __init__(self, mark: str) -> None:
        self._needle = f"{MARK}={mark}".encode()
        self._known: dict[processes.ProcessId, bool] = {}

    def members(self) -> dict[int, str]:
        """Live processes by pid, with what they are: driver, dispatcher, agent, zygote, slot,
        other.
        """
        stats = processes.look()
        ours = {
            pid: _command(pid)
            for pid, stat in stats.items()
            if stat.running and self._is_ours(processes.ProcessId(pid, stat.started))
        }
        found = {}
        for pid, command in ours.items():
            depth, at = 0, pid
            while (parent := stats[at].parent) in ours and _is_worker(ours[parent]):
                depth, at = depth + 1, parent
            found[pid] = _kind(command, depth)
        return found

    def of_kind(self, kind: str) -> list[int]:
        """Pids, oldest first."""
        return sorted(pid for pid, each in self.members().items() if each == kind)

    def destroy(self) -> None:
        """Leave nothing behind, whatever happened."""
        for _ in range(100):
            found = self.members()
            if not found:
                return
            processes.send(found, signal.SIGKILL)

    def _is_ours(self, identity: processes.ProcessId) -> bool:
        known = self._known.get(identity)
        if known is None:
            known = False
            with contextlib.suppress(OSError):
                environment = Path(f"/proc/{identity.pid}/environ").read_bytes()
                known = self._needle in environment.split(b"\0")
                if not environment:
                    return False  # between fork and exec: look again
            if identity.pid == os.getpid():
                known = False
            self._known[identity] = known
        return known


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _is_worker(command: bytes) -> bool:
    return b"kilnwork.worker" in command


def _kind(command: bytes, depth: int) -> str:
    """`depth`: how many workers are above it."""
    if b"kilnwork.dispatch" in command:
        return "dispatcher"
    if b"support.programs.driver" in command:
        return "driver"
    if _is_worker(command):
        return ("agent", "zygote", "slot")[min(depth, 2)]
    return "other"
