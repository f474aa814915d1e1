"""The calls that a slot holds: queued, running (one on top of the other), and ended but not yet
acknowledged.

Used by `slot_session`, and by `pod_call` for its single call. Reports are kept until the dispatcher
has stored them. In a slot, all state changes under `lock`, since the main thread runs calls while
the link's thread receives messages. The lock also guards the page and the output, which belong to
the call on top.
"""

import threading
from collections import deque
from collections.abc import Iterable

from kilnwork.api import attempts, calls
from kilnwork.channel import messages
from kilnwork.sdk import context

Report = messages.Started | messages.CallsEnded


class StackLevel:
    """One attempt that has started; other attempts may run on top of it while it waits for them.

    The defaults are class attributes, because one object is created for every call.
    """

    began = 0.0
    """Monotonic time at which the attempt's function was called, in seconds."""
    seconds = 0.0
    """Seconds for which the attempt's function ran."""
    cpu_began = 0.0
    """CPU seconds of the process when the measurement began, plus those of the attempts that ran on
    top since.
    """
    below: "StackLevel | None" = None
    """The attempt on top of which this attempt runs, if any."""
    usage: attempts.Usage | None = None
    """Resources that the attempt used itself, without attempts on top; None until it has ended."""
    printed = 0
    """Bytes of the attempt's output that were read."""
    stop = ""
    """The reason why the attempt must end; "" while it may run."""
    raised = False
    """Whether Cancelled was raised in the attempt."""
    reported = False
    """Whether the start of the attempt was reported."""
    over = False
    """Whether the attempt has left the stack."""
    waits = 0
    """Number of the attempt's threads and coroutines that wait for tasks now."""
    announced: messages.Waiting | None = None
    """The message that reported these waits to the dispatcher."""
    ordinals: dict[str, int] | None = None
    """The number of submissions without a key so far, by function."""
    inner: context.Context | None = None
    """The context that user code sees."""

    def __init__(self, run: calls.CallRun, started: float) -> None:
        self.run = run
        self.ref = run.ref
        self.started = started

    def next_ordinal(self, function: str) -> int:
        """Return the ordinal of this submission of `function` among the submissions without a key,
        from 1.
        """
        if self.ordinals is None:
            self.ordinals = {}
        ordinal = self.ordinals[function] = self.ordinals.get(function, 0) + 1
        return ordinal


class SlotCalls:
    """All calls that a slot holds; see the module.

    `stack`: the started calls, the innermost last. `stops`: the calls on the stack that must end.
    """

    def __init__(self) -> None:
        # Not reentrant: `Link.flush` calls `gather`, which takes the lock, so call it without the
        # lock.
        self.lock = threading.Lock()
        self.stack: list[StackLevel] = []
        self.stops: set[StackLevel] = set()
        self.queue: deque[calls.CallRun] = deque()
        self.placed: deque[calls.CallRun] = deque()
        self.ends: list[calls.CallEnd] = []
        self._serial = 0
        self._reports: dict[int, Report] = {}

    # Callers of the methods below must hold the lock.

    def take_in(self, runs: Iterable[calls.CallRun]) -> list[attempts.AttemptRef]:
        """Queue calls that were received; return the attempts that cannot run here now."""
        level = self.stack[-1] if self.stack else None
        waits = level is not None and level.waits > 0
        in_place = level is not None and level.announced is not None and level.announced.in_place
        returned = []
        for run in runs:
            if run.in_place and in_place:
                self.placed.append(run)
            elif run.in_place or waits:
                # It was placed on a wait that is over.
                returned.append(run.ref)
            else:
                self.queue.append(run)
        return returned

    def return_all(self) -> list[attempts.AttemptRef]:
        refs = [run.ref for run in (*self.placed, *self.queue)]
        self.placed.clear()
        self.queue.clear()
        return refs

    def take_back(self, count: int) -> list[attempts.AttemptRef]:
        """Remove up to `count` of the newest queued calls, and return their attempts."""
        return [self.queue.pop().ref for _ in range(min(count, len(self.queue)))]

    def withdraw(self, ref: attempts.AttemptRef) -> bool:
        """Remove an attempt from the queue; return False if it has started already."""
        for waiting in (self.queue, self.placed):
            for run in waiting:
                if run.ref == ref:
                    waiting.remove(run)
                    return True
        return False

    def level(self, ref: attempts.AttemptRef) -> StackLevel | None:
        """Return the stack level of an attempt that has started, whether it runs or waits; None if
        it is not on the stack.
        """
        return next((level for level in self.stack if level.ref == ref), None)

    def stop(self, level: StackLevel, reason: str) -> None:
        level.stop = reason
        self.stops.add(level)
        if level.inner is not None:
            level.inner.stop()

    def pop(self, end: calls.CallEnd) -> None:
        level = self.stack.pop()
        level.over = True
        self.stops.discard(level)
        self.ends.append(end)

    def templates(self) -> set[int]:
        """Return the numbers of the templates that started and queued calls use."""
        runs = [level.run for level in self.stack]
        return {run.template for run in (*runs, *self.placed, *self.queue)}

    def refs(self) -> tuple[attempts.AttemptRef, ...]:
        """Return all attempts that this slot must declare to the dispatcher."""
        reported = [ref for report in self._reports.values() for ref in _refs(report)]
        running = [level.ref for level in self.stack]
        waiting = [run.ref for run in (*self.placed, *self.queue)]
        ended = [end.ref for end in self.ends]
        return tuple(dict.fromkeys((*running, *waiting, *ended, *reported)))

    def drop(self, unknown: set[attempts.AttemptRef]) -> bool:
        """Drop attempts that the dispatcher does not know; return True if any of them is on the
        stack.

        Those on the stack are left to the caller.
        """
        for waiting in (self.queue, self.placed):
            remaining = [run for run in waiting if run.ref not in unknown]
            waiting.clear()
            waiting.extend(remaining)
        self.ends[:] = [end for end in self.ends if end.ref not in unknown]
        for serial, report in list(self._reports.items()):
            if isinstance(report, messages.Started):
                if report.ref in unknown:
                    del self._reports[serial]
            else:
                ends = tuple(end for end in report.ends if end.ref not in unknown)
                self._reports[serial] = messages.CallsEnded(serial, ends)
        return any(level.ref in unknown for level in self.stack)

    # reports

    def report_start(self, level: StackLevel) -> messages.Started:
        level.reported = True
        self._serial += 1
        report = messages.Started(self._serial, level.ref, level.started)
        self._reports[self._serial] = report
        return report

    def report_ends(self) -> messages.CallsEnded | None:
        """Return a report of the ended calls that are in no report yet; None if there are none."""
        if not self.ends:
            return None
        self._serial += 1
        report = messages.CallsEnded(self._serial, tuple(self.ends))
        self.ends.clear()
        self._reports[self._serial] = report
        return report

    def acknowledged(self, serial: int) -> None:
        """Drop the reports up to `serial`, which the dispatcher has stored."""
        while self._reports and (oldest := next(iter(self._reports))) <= serial:
            del self._reports[oldest]

    def reports(self) -> list[Report]:
        return list(self._reports.values())


def _refs(report: Report) -> Iterable[attempts.AttemptRef]:
    if isinstance(report, messages.Started):
        return (report.ref,)
    return (end.ref for end in report.ends)
