"""Waiting for processes: the only place of the worker that does.

The worker is a subreaper, so it becomes the parent of whatever its tasks leave behind. One sweep
waits for every child that has ended, hands the exit status of a watched one to who watches it, and
drops those of orphans. No other code in this process may wait, or statuses would be lost.
"""

import asyncio
import os
import resource
import signal
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.kit import processes


class ProcessExit(NamedTuple):
    """A child that is over. `code`: 0 to 255, or minus the signal that ended it; `used`: by it and
    those that it has waited for."""

    code: int
    used: resource.struct_rusage

    @property
    def usage(self) -> attempts.Usage:
        """What it has used.

        The kernel takes the peak of the process that made it for its own (getrusage(2), ru_maxrss
        is kept over an exec): one that is no higher says nothing.
        """
        used, peak = self.used, self.used.ru_maxrss << 10
        known = peak > _own_peak_bytes()
        return attempts.Usage(used.ru_utime + used.ru_stime, peak if known else None)


def _own_peak_bytes() -> int:
    """Return the peak memory of this process: ru_maxrss may be that of the process before exec."""
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123  as in `usage`
        line = next(line for line in file if line.startswith(b"VmHWM:"))
    return int(line.split()[1]) << 10


class Reaper:
    """See the module."""

    def __init__(self) -> None:
        self._watched: dict[int, asyncio.Future[ProcessExit]] = {}

    def start(self) -> None:
        """Become a subreaper and sweep at every SIGCHLD; call in the running event loop.

        Sweeps at once, too: a SIGCHLD from before this call was not handled.
        """
        processes.become_subreaper()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.sweep)
        self.sweep()

    def stop(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def watch(self, pid: int) -> asyncio.Future[ProcessExit]:
        """How a child has ended, once it has.

        Call in the same turn of the event loop in which the child was started.
        """
        ended = asyncio.get_running_loop().create_future()
        self._watched[pid] = ended
        return ended

    @property
    def watched(self) -> frozenset[int]:
        """Pids of children that are waited for; all other children are orphans of a task."""
        return frozenset(self._watched)

    def sweep(self) -> bool:
        """Wait for all that have ended. True if not one child is left, not even a living one.

        That is the kernel's word (ECHILD), and with it proof: every process that a task started is
        below this one.
        """
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            ended = self._watched.pop(pid, None)
            if ended is not None and not ended.done():
                ended.set_result(ProcessExit(os.waitstatus_to_exitcode(status), used))
