"""The reaper, which is the only code of the agent's process that waits for child processes.

The worker is a subreaper, so it becomes the parent of every process that its tasks leave behind.
One sweep waits for every child that has exited, hands the exit status of a watched child to its
watcher, and drops the exit status of an orphan. If other code in this process waited for a child,
the child's exit status would be lost.
"""

import asyncio
import os
import resource
import signal
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.kit import processes


class ProcessExit(NamedTuple):
    """The exit of a child process.

    `code`: exit code 0 to 255, or minus the signal that ended it. `used`: the resources used by it
    and by the children that it waited for.
    """

    code: int
    used: resource.struct_rusage

    @property
    def usage(self) -> attempts.Usage:
        """Return the CPU time and peak memory that the process has used.

        A peak that does not exceed that of this worker is left out: ru_maxrss is kept over an exec
        (getrusage(2)), so such a value says nothing about the command.
        """
        used, peak = self.used, self.used.ru_maxrss << 10
        known = peak > _own_peak_bytes()
        return attempts.Usage(used.ru_utime + used.ru_stime, peak if known else None)


def _own_peak_bytes() -> int:
    """Return the peak memory of this process in bytes.

    This is not ru_maxrss, which may be that of the process before exec.
    """
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123  as in `usage`
        line = next(line for line in file if line.startswith(b"VmHWM:"))
    return int(line.split()[1]) << 10


class Reaper:
    """Waiter for all children of this process; see the module."""

    def __init__(self) -> None:
        self._watched: dict[int, asyncio.Future[ProcessExit]] = {}

    def start(self) -> None:
        """Become a subreaper, and sweep now and at every SIGCHLD; call in the running event loop.

        The first sweep handles a SIGCHLD from before this call.
        """
        processes.become_subreaper()
        # asyncio calls this handler from the loop, so a sweep never interrupts other code of this
        # process.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.sweep)
        self.sweep()

    def stop(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def watch(self, pid: int) -> asyncio.Future[ProcessExit]:
        """Return a future for the exit of the child `pid`.

        Call in the same turn of the event loop in which the child was started, so that no sweep
        comes between.
        """
        ended = asyncio.get_running_loop().create_future()
        self._watched[pid] = ended
        return ended

    @property
    def watched(self) -> frozenset[int]:
        """Return the pids of the watched children; all other children are orphans of tasks."""
        return frozenset(self._watched)

    def sweep(self) -> bool:
        """Wait for all children that have exited; return True if no child is left, not even a
        running one.

        That no child is left is the kernel's statement (ECHILD), and proof: every process that a
        task started is below this one.
        """
        while True:
            try:
                # The kernel merges SIGCHLDs: one may stand for many children, hence the loop.
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            ended = self._watched.pop(pid, None)
            if ended is not None and not ended.done():
                ended.set_result(ProcessExit(os.waitstatus_to_exitcode(status), used))
