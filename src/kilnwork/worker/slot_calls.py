"""What a slot holds: calls that are queued, that run, one on top of the other, and ends to report.

Used by `slot_session`. Reports are kept until the dispatcher has them on disk. Everything here is
changed under `lock`, since the main thread runs calls while the link's thread hears of others; the
lock is also that of the page and of the output, which go with what is on top.
"""

import threading
from collections import deque
from collections.abc import Iterable

from kilnwork.api import attempts, calls
from kilnwork.channel import messages
from kilnwork.sdk import context

Report = messages.Started | messages.CallsEnded


class StackLevel:
    """One attempt that has begun, and may have others on top that it waits for.

    `started`: wall clock, seconds; `began`: the same by the monotonic clock, once its arguments are
    there; `seconds`: how long its function took. `cpu_began`: what the process had used of CPU
    then, and what has run on top since; `below`: what it runs on top of; `usage`: what it has used
    itself, once it is over. `stop`: why it is to end, "" as long as it may run. `raised`: Cancelled
    was raised in it. `call_waits`: how often it waits: its main thread, coroutines and threads of
    its own. `announced`: the message that has reported that to the dispatcher. `inner`: what user
    code sees of it. The defaults are of the class: one is made for every call.
    """

    began = 0.0
    seconds = 0.0
    cpu_began = 0.0
    below: "StackLevel | None" = None
    usage: attempts.Usage | None = None
    printed = 0
    stop = ""
    raised = False
    reported = False
    over = False
    waits = 0
    announced: messages.Waiting | None = None
    ordinals: dict[str, int] | None = None
    inner: context.Context | None = None

    def __init__(self, run: calls.CallRun, started: float) -> None:
        self.run = run
        self.ref = run.ref
        self.started = started

    def next_ordinal(self, function: str) -> int:
        """The how-manieth call of `function` without a key this is, from 1."""
        if self.ordinals is None:
            self.ordinals = {}
        ordinal = self.ordinals[function] = self.ordinals.get(function, 0) + 1
        return ordinal


class SlotCalls:
    """See the module. `stack`: the innermost last. `stops`: those of it that are to end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stack: list[StackLevel] = []
        self.stops: set[StackLevel] = set()
        self.queue: deque[calls.CallRun] = deque()
        self.placed: deque[calls.CallRun] = deque()
        self.ends: list[calls.CallEnd] = []
        self._serial = 0
        self._reports: dict[int, Report] = {}

    # all of the following under the lock

    def take_in(self, runs: Iterable[calls.CallRun]) -> list[attempts.AttemptRef]:
        """Keep what was sent; what can not run here now is to be returned."""
        level = self.stack[-1] if self.stack else None
        waits = level is not None and level.waits > 0
        in_place = level is not None and level.announced is not None and level.announced.in_place
        returned = []
        for run in runs:
            if run.in_place and in_place:
                self.placed.append(run)
            elif run.in_place or waits:
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
        """Up to `count` of the newest that have not begun."""
        return [self.queue.pop().ref for _ in range(min(count, len(self.queue)))]

    def withdraw(self, ref: attempts.AttemptRef) -> bool:
        """True if it had not begun; it never will."""
        for waiting in (self.queue, self.placed):
            for run in waiting:
                if run.ref == ref:
                    waiting.remove(run)
                    return True
        return False

    def level(self, ref: attempts.AttemptRef) -> StackLevel | None:
        """The one that runs, or waits below others."""
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
        """Numbers of those that its calls have."""
        runs = [level.run for level in self.stack]
        return {run.template for run in (*runs, *self.placed, *self.queue)}

    def refs(self) -> tuple[attempts.AttemptRef, ...]:
        """Everything that the dispatcher should know is here."""
        reported = [ref for report in self._reports.values() for ref in _refs(report)]
        running = [level.ref for level in self.stack]
        waiting = [run.ref for run in (*self.placed, *self.queue)]
        ended = [end.ref for end in self.ends]
        return tuple(dict.fromkeys((*running, *waiting, *ended, *reported)))

    def drop(self, unknown: set[attempts.AttemptRef]) -> bool:
        """Forget these; True when one of them runs, which cannot be forgotten."""
        for waiting in (self.queue, self.placed):
            kept = [run for run in waiting if run.ref not in unknown]
            waiting.clear()
            waiting.extend(kept)
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

    def started(self, level: StackLevel) -> messages.Started:
        level.reported = True
        self._serial += 1
        report = messages.Started(self._serial, level.ref, level.started)
        self._reports[self._serial] = report
        return report

    def done(self) -> messages.CallsEnded | None:
        """The report of all ends so far that are in none; None when there are none."""
        if not self.ends:
            return None
        self._serial += 1
        report = messages.CallsEnded(self._serial, tuple(self.ends))
        self.ends.clear()
        self._reports[self._serial] = report
        return report

    def acknowledged(self, serial: int) -> None:
        """Reports up to this one are on disk."""
        while self._reports and (oldest := next(iter(self._reports))) <= serial:
            del self._reports[oldest]

    def reports(self) -> list[Report]:
        return list(self._reports.values())


def _refs(report: Report) -> Iterable[attempts.AttemptRef]:
    if isinstance(report, messages.Started):
        return (report.ref,)
    return (end.ref for end in report.ends)
