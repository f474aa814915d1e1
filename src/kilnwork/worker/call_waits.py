"""The waits of a slot's calls for other tasks: a call releases the slot, and resumes when the tasks
have finished.

Used by `slot_session`, in whichever thread waits. In the main thread a task may wait *in place*:
the task that it waits for runs on top of it in the same process, to any depth. A task does not wait
in place while other code of it may run (in a thread of its own, or in an event loop), since then
the parent of a submitted task would be ambiguous.
"""

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, Protocol

from kilnwork.api import calls
from kilnwork.channel import messages
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import futures
from kilnwork.worker import interrupts, slot_call_table

LOOK_S = 0.5
"""Seconds between two checks by a waiting task for output of the processes and threads that it has
started.
"""

HIDDEN_FRAMES = 40
"""Number that is added to the recursion limit for each call on the stack, besides its frames: C
functions on the way count against the limit, but have no frames.
"""


class Runner(Protocol):
    """Port of the slot's session, which runs calls; see `slot_session.SlotSession`."""

    link: Any

    def gather(self) -> None: ...
    def begin(self, waiting: deque[calls.CallRun]) -> slot_call_table.StackLevel | None: ...
    def run(self, level: slot_call_table.StackLevel, where: int) -> None: ...
    def settle(self, level: slot_call_table.StackLevel) -> None: ...


class CallWaits:
    """The waits of a slot's calls: releases the slot before a wait and regains it afterwards; see
    the module.

    Create it in the main thread. `home`: the slot's working directory, as a descriptor. `base`: the
    function that has exactly one frame on the stack for each call.
    """

    def __init__(
        self,
        runner: Runner,
        held: slot_call_table.SlotCalls,
        guard: interrupts.Interrupts,
        *,
        clock: clocks.Clock,
        home: int,
        base: Callable[..., object],
    ) -> None:
        self._runner = runner
        self._held = held
        self._guard = guard
        self._monotonic = clock.monotonic
        self._home, self._home_is = home, os.fstat(home)
        self._base: CodeType = base.__code__
        self._main = threading.get_ident()
        self._threads = 1

    def count_threads(self) -> None:
        """Record how many threads run now; these belong to libraries, not to a call."""
        self._threads = threading.active_count()

    def block(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        tasks: Sequence[ids.TaskId],
        *,
        first: bool,
    ) -> bool:
        """Wait as `Session.block` does, for the task on top of the stack.

        In the main thread, raises Cancelled when that task must end.
        """
        level = self._held.stack[-1]
        if threading.get_ident() != self._main:
            self.release_slot(level, tasks, in_place=False, first=first)
            try:
                return bool(self._runner.link.wait(done, timeout_s))
            finally:
                self.resume(level)
        # Not with a timeout: the call on top could run for longer.
        in_place = timeout_s is None and self._undivided()
        # Not user code any more: `_wait` raises Cancelled itself.
        user, self._guard.user = self._guard.user, False
        self.release_slot(level, tasks, in_place=in_place, first=first)
        try:
            return self._wait(level, done, timeout_s)
        finally:
            self.resume(level)
            self._guard.user = user

    def release_slot(
        self,
        level: slot_call_table.StackLevel,
        tasks: Sequence[ids.TaskId],
        *,
        in_place: bool,
        first: bool = False,
    ) -> None:
        """Report that the task waits, so that other tasks may use the slot; return the queued calls
        to the dispatcher.

        `in_place`: the awaited tasks may run on top of this one. `first`: see `Session.block`.
        """
        runner = self._runner
        # The dispatcher must read of the tasks before it reads that they are awaited.
        runner.gather()
        with self._held.lock:
            level.waits += 1
            returned = self._held.return_all()
            level.announced = message = messages.Waiting(
                level.ref, tuple(tasks), in_place, first, more=_not_all(tasks)
            )
        if returned:
            runner.link.send(messages.Returned(tuple(returned)))
        runner.link.send(message)

    def resume(self, level: slot_call_table.StackLevel) -> None:
        """End one wait of the task; if no other thread or coroutine of it waits, report that it has
        resumed.
        """
        with self._held.lock:
            level.waits -= 1
            if level.waits or level.announced is None or level.over:
                return
            level.announced = None
            returned = self._held.return_all()
        if returned:
            self._runner.link.send(messages.Returned(tuple(returned)))
        self._runner.link.send(messages.Resumed(level.ref))

    def _undivided(self) -> bool:
        """Return whether the whole task waits: none of its code runs in another thread or in an
        event loop.
        """
        # Without asyncio in memory no event loop can be running.
        events = sys.modules.get("asyncio.events")
        looping = events is not None and events._get_running_loop() is not None
        return not looping and threading.active_count() <= self._threads

    def _wait(
        self, level: slot_call_table.StackLevel, done: Callable[[], bool], timeout_s: float | None
    ) -> bool:
        runner, placed, due = self._runner, self._held.placed, self._guard.due
        until = None if timeout_s is None else self._monotonic() + timeout_s

        def look() -> bool:
            return done() or bool(placed) or due()

        while True:
            left_s = LOOK_S if until is None else min(LOOK_S, until - self._monotonic())
            runner.link.wait(look, left_s)
            # Checked first: a call that must end gets no result any more.
            if due():
                raise self._guard.cancelled()
            if done():
                return True
            above = runner.begin(placed)
            if above is not None:
                self._run_above(above)
            elif until is not None and self._monotonic() >= until:
                return False
            else:
                with self._held.lock:
                    runner.settle(level)

    def _run_above(self, above: slot_call_table.StackLevel) -> None:
        """Run another call on top of the waiting call, with as much stack as any call has; then
        restore what it has changed.
        """
        before, where = sys.getrecursionlimit(), self._open_working_directory()
        sys.setrecursionlimit(before + self._frames() + HIDDEN_FRAMES)
        try:
            self._runner.run(above, where)
        finally:
            sys.setrecursionlimit(before)
            if where != self._home:
                os.close(where)

    def _open_working_directory(self) -> int:
        """Return the working directory of the waiting call, as a descriptor."""
        with contextlib.suppress(OSError):  # the directory was removed
            if not os.path.samestat(os.stat("."), self._home_is):  # noqa: PTH116  half the time
                return os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        return self._home

    def _frames(self) -> int:
        """Return the number of stack frames of the waiting call."""
        count = 0
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not self._base:
            count += 1
            frame = frame.f_back
        return count


def _not_all(tasks: Sequence[ids.TaskId]) -> bool:
    """Return whether the call may be waiting for tasks that are not in `tasks`."""
    return not tasks or len(tasks) >= futures.TASKS_NAMED
