"""Measurement of the CPU seconds and the peak resident memory of a call.

Used by `call_execution`, in slots and in Pods of calls. The calls of a slot share one process:
after a call that raised the kernel's peak, the peak is reset, so that it does not count for the
next call. The usage of commands is measured by `reaper`.
"""

import os
import resource
import time

from kilnwork.api import attempts
from kilnwork.worker import slot_call_table

SHORT_S = 0.001
"""Seconds: shorter calls of a slot are not measured. Measuring them would cost a tenth of the
slot's throughput.
"""

RAISED_BYTES = 16 << 20
"""Bytes: a peak is reset if a call has raised it by this much, and the memory in use has fallen by
this much since.
"""

_RESET_PEAK = b"5"
"""Text for /proc/self/clear_refs (proc_pid_clear_refs(5)) that resets the peak to the memory that
is resident now.
"""

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class Meter:
    """Meter of the calls of one process, in its main thread.

    `min_s`: calls that take fewer seconds are not measured.
    """

    def __init__(self, *, min_s: float = SHORT_S) -> None:
        self._min_s = min_s
        self._newest: slot_call_table.StackLevel | None = None
        """The call that runs, on top of the calls that wait for it."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._children_s = before.ru_utime + before.ru_stime
        self._children_peak = before.ru_maxrss
        self._peak = 0

    def begin(self, level: slot_call_table.StackLevel) -> None:
        """Start to measure a call, which may run on top of a call that waits for it."""
        level.below, self._newest = self._newest, level
        level.cpu_began = time.process_time()

    def end(self, level: slot_call_table.StackLevel) -> attempts.Usage | None:
        """Return the usage of a call that ended after `level.seconds`; None if it was short or
        never started.

        Whether a call is short does not depend on the time that the report of its failure takes.
        """
        # The call never began, or was measured already.
        if self._newest is not level:
            return level.usage
        self._newest = below = level.below
        used_s = level.seconds
        if used_s >= self._min_s:
            level.usage = self._measured(level)
            used_s = level.usage.cpu_s
        # CPU time of a call on top does not count for the call below.
        if below is not None:
            below.cpu_began += used_s
        return level.usage

    def _measured(self, level: slot_call_table.StackLevel) -> attempts.Usage:
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        children_s = children.ru_utime + children.ru_stime
        used_s = own.ru_utime + own.ru_stime - level.cpu_began + children_s - self._children_s
        self._children_s = children_s
        peak = own.ru_maxrss << 10
        # The kernel has one peak for all children: it says something about this call only if it has
        # risen.
        if children.ru_maxrss > self._children_peak:
            self._children_peak = children.ru_maxrss
            peak = max(peak, children.ru_maxrss << 10)
        self._peak = self._settled(own.ru_maxrss << 10)
        return attempts.Usage(max(0.0, used_s), peak)

    def _settled(self, peak: int) -> int:
        """Return the peak memory, in bytes, with which the next call starts; reset the peak if it
        is too high.
        """
        if peak < self._peak + RAISED_BYTES:
            return peak
        try:
            with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
                resident = int(file.read().split()[1]) * _PAGE_BYTES
            if peak < resident + RAISED_BYTES:
                return peak
            with open("/proc/self/clear_refs", "wb", buffering=0) as file:  # noqa: PTH123
                file.write(_RESET_PEAK)
        except (OSError, ValueError, IndexError):
            return peak
        return resident
