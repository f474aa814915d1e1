"""The session of a slot: receives calls, runs them one at a time, reports how they ended.

Used by `slot`. It is a `Session` as drivers have one, so that what a task submits goes over the
slot's own link, with the running attempt as parent. The main thread runs user code; messages are
read by whichever thread waits, or by that of the link while user code runs. A task that waits for
others lets go of its slot, and may run those others on top of itself, in place.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from kilnwork.api import attempts, calls
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import frames, messages
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import errors, futures, session
from kilnwork.worker import capture, execution, holdings, interrupts, page

FLUSH_ENDS = 64
FLUSH_BYTES = 256 * 1024
FLUSH_S = 0.002
"""Ends are reported when there are so many or so large ones, or when the first has waited so long;
and whenever there is nothing to run."""

STARTED_S = 0.05
"""A call that runs longer is reported as started."""

LOOK_S = 0.5
"""A task that waits looks so often for output of processes and threads that it has started."""

TIDY_S = 500e-9
"""A function that took less has made no system call, so it has left nothing to clear away."""

HIDDEN_FRAMES = 40
"""What C functions on the way count against the recursion limit, for each call on the stack."""

HOME = "KILN_HOME_ID"
"""In the environment of what `kiln.start` has started: there all slots see the same files."""


class SlotSession(session.Session):
    """See the module. `work` is the life of the main thread."""

    in_slot = True
    tick_s = STARTED_S

    def __init__(
        self,
        *,
        slot: bytes,
        secret: str,
        connect: Callable[[], socket.socket],
        clock: clocks.Clock,
        sheet: page.Page,
        pipe: tuple[int, int],
    ) -> None:
        super().__init__(
            connect=connect,
            credential=lambda: secret,
            decode=frames.decode_to_slot,
            clock=clock,
        )
        self.shares_files = HOME in os.environ
        self._slot = slot
        self._page = sheet
        self._wall, self._monotonic = clock.wall, clock.monotonic
        self._held = holdings.Holdings()
        self._stack = self._held.stack
        self._call_templates: dict[int, execution.Template] = {}
        self._execution = execution.Execution(self, clock=clock)
        self._guard = interrupts.Interrupts(self._stack, doors=execution.DOORS)
        self._execution.guard = self._guard
        self._capture = capture.Capture(pipe, sheet, send=self._send, room=self._has_room)
        self._main = threading.get_ident()
        self._threads = 0
        self._ended_bytes = 0
        self._flush_at = 0.0
        self._forked = False
        self._home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self._recursion = sys.getrecursionlimit()
        os.register_at_fork(after_in_child=self._after_fork)

    # the main thread

    def work(self) -> None:
        """Run what comes until the link is over."""
        session.activate(self)
        self._threads = threading.active_count()
        held = self._held
        while True:
            level = self._begin(held.queue)
            if level is not None:
                self._run(level)
            else:
                self._page.clear()
                self.link.wait(lambda: bool(held.queue))

    def _begin(self, waiting: Any) -> holdings.Level | None:
        held = self._held
        with held.lock:
            if not waiting:
                return None
            if self._stack:
                self._settle(self._stack[-1])
            level = holdings.Level(waiting.popleft(), self._wall())
            self._page.write(level.ref, level.started)
            self._stack.append(level)
        return level

    def _run(self, level: holdings.Level) -> None:
        """Run a call to its end, and keep what is to be said of it."""
        template = self._call_templates.get(level.run.template)
        before, where = self.environment, self._home
        if len(self._stack) > 1:
            with contextlib.suppress(OSError):  # somebody has removed it
                where = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            if template is None:
                raise errors.KilnError("a call came before its template")
            self.environment = template.call.environment
            end = self._execution.run(level, template)
        except BaseException as error:  # noqa: BLE001  an interrupt that came a moment late
            self._guard.user = False
            end = self._execution.failed(level, error, template)
        self.environment = before
        if self._forked:
            self._leave_fork(end)
        if level.seconds > TIDY_S:
            self._tidy(where)
        if where != self._home:
            os.close(where)
        if level.raised:
            self._look_for_children()
        held = self._held
        with held.lock:
            self._settle(level)
            self._stack.pop()
            held.ends.append(end)
            if self._stack:
                below = self._stack[-1]
                self._page.write(below.ref, below.started, below.printed)
        self._report(end)

    def _settle(self, level: holdings.Level) -> None:
        """What was printed until now is of this one."""
        if self._capture.settle(level):
            self._page.write(level.ref, level.started, level.printed)

    def _report(self, end: calls.CallEnd) -> None:
        """See to it that ends do not wait too long while others run."""
        self._ended_bytes += 0 if end.payload is None else len(end.payload.data)
        now = end.started + end.seconds
        if (
            len(self._held.ends) >= FLUSH_ENDS
            or now >= self._flush_at
            or self._ended_bytes >= FLUSH_BYTES
        ):
            self.link.flush()
            self._flush_at = now + FLUSH_S

    def _tidy(self, where: int) -> None:
        """What a call may leave behind and the next would trip over, or whoever it ran on top of.

        `where`: the working directory, as a descriptor.
        """
        os.fchdir(where)
        self._capture.repair()
        self._guard.repair()
        if sys.getrecursionlimit() < self._recursion:
            sys.setrecursionlimit(self._recursion)

    def _look_for_children(self) -> None:
        """After an interrupt: if it has left processes, only our own end gets rid of them."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                self._die()

    def _die(self) -> None:
        """End, with everything below; the agent says that this attempt ran."""
        with self._held.lock:
            if self._stack:
                self._settle(self._stack[-1])
        self.link.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def _after_fork(self) -> None:
        self._forked = True

    def _leave_fork(self, end: calls.CallEnd) -> None:
        """A function returned in a process that it has forked: there is no slot here."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if end.ending is execution.SUCCEEDED else 1)

    # waiting, in whichever thread

    def block(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        tasks: Sequence[ids.TaskId],
        *,
        first: bool = False,
    ) -> bool:
        """Wait until `done()`: without the slot, and in the main thread perhaps running what is
        waited for on top of the task that waits.

        Raises Cancelled when the task is asked to stop.
        """
        if done():
            return True
        level = self._stack[-1] if self._stack else None
        if level is None:
            return self.link.wait(done, timeout_s)
        main = threading.get_ident() == self._main
        in_place = main and timeout_s is None and self._undivided()
        self._lets_go(level, tasks, in_place=in_place, first=first)
        user = main and self._guard.user
        try:
            if main:
                return self._wait(level, done, timeout_s)
            return self.link.wait(done, timeout_s)
        finally:
            self._goes_on(level)
            if main:
                self._guard.user = user

    def suspended(self, tasks: Sequence[ids.TaskId]) -> None:
        """A coroutine of the task awaits others; more of them may run."""
        if self._stack:
            self._lets_go(self._stack[-1], tasks, in_place=False)

    def resumed(self) -> None:
        """It goes on."""
        if self._stack:
            self._goes_on(self._stack[-1])

    def parent(self, function: str, *, keyed: bool) -> tuple[attempts.AttemptRef | None, int]:
        """The running attempt, and which call of this function it asks for."""
        if not self._stack:
            raise errors.NotInTask(
                "a thread that a task has left behind cannot submit: its task is over"
            )
        level = self._stack[-1]
        if keyed:
            return level.ref, 0
        if level.ordinals is None:
            level.ordinals = {}
        ordinal = level.ordinals.get(function, 0) + 1
        level.ordinals[function] = ordinal
        return level.ref, ordinal

    def needed(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        """A task whose result was not sent along with the call that takes it; waits for it."""
        found = self.future(task_id)
        self.block(found.done, None, (task_id,))
        return found

    def _undivided(self) -> bool:
        """True when the whole task waits: no thread of it, no event loop runs something else."""
        events = sys.modules.get("asyncio.events")
        looping = events is not None and events._get_running_loop() is not None
        return not looping and threading.active_count() <= self._threads

    def _lets_go(
        self,
        level: holdings.Level,
        tasks: Sequence[ids.TaskId],
        *,
        in_place: bool,
        first: bool = False,
    ) -> None:
        self.gather()
        with self._held.lock:
            level.waits += 1
            returned = self._held.return_all()
            level.announced = message = messages.Waiting(level.ref, tuple(tasks), in_place, first)
        if returned:
            self.link.send(messages.Returned(tuple(returned)))
        self.link.send(message)
        if threading.get_ident() != self._main:
            self.link.flush()

    def _goes_on(self, level: holdings.Level) -> None:
        with self._held.lock:
            level.waits -= 1
            if level.waits:
                return
            level.announced = None
            returned = self._held.return_all()
        if returned:
            self.link.send(messages.Returned(tuple(returned)))
        self.link.send(messages.Resumed(level.ref))

    def _wait(
        self, level: holdings.Level, done: Callable[[], bool], timeout_s: float | None
    ) -> bool:
        placed, due = self._held.placed, self._guard.due
        until = None if timeout_s is None else self._monotonic() + timeout_s

        def look() -> bool:
            return done() or bool(placed) or due()

        while True:
            left_s = LOOK_S if until is None else min(LOOK_S, until - self._monotonic())
            self.link.wait(look, left_s)
            if due():
                raise self._guard.cancelled()
            if done():
                return True
            above = self._begin(placed)
            if above is not None:
                self._run_above(above)
            elif until is not None and self._monotonic() >= until:
                return False
            else:
                with self._held.lock:
                    self._settle(level)

    def _run_above(self, above: holdings.Level) -> None:
        """As `_run`, with as much room for its own calls as any other has."""
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + self._frames() + HIDDEN_FRAMES)
        try:
            self._run(above)
        finally:
            sys.setrecursionlimit(before)

    def _frames(self) -> int:
        """How many frames the call below takes."""
        count = 0
        frame: FrameType | None = sys._getframe()
        while frame is not None and (frame.f_code is not _RUN or not count):
            count += 1
            frame = frame.f_back
        return count

    # the link; in whichever thread reads

    def hello(self, epoch: int) -> messages.SlotHello:
        """Who we are, and everything that we have."""
        with self._held.lock:
            refs = self._held.refs()
        return messages.SlotHello(messages.VERSION, self._slot, self._credential(), epoch, refs)

    def attached(self, message: messages.Attached) -> list[frames.Sent]:
        """What a submitter says; who waits; then what was printed, and what has ended."""
        said = super().attached(message)
        held = self._held
        with held.lock:
            if held.drop(set(message.unknown)):
                os.kill(os.getpid(), signal.SIGKILL)
            said += [level.announced for level in self._stack if level.announced is not None]
            known = set(held.refs())
            said += [log for log in self._capture.kept if log.ref in known]
            said += held.reports()
        return said

    def received(self, message: Any) -> None:
        """Calls, what is to become of them, and what any submitter receives."""
        match message:
            case messages.Calls():
                with self._held.lock:
                    returned = self._held.take_in(message.runs)
                if returned:
                    self.link.send(messages.Returned(tuple(returned)))
            case messages.Acknowledged():
                with self._held.lock:
                    self._held.acknowledged(message.serial)
            case messages.Template():
                self._call_templates[message.number] = execution.Template(message.spec)
            case messages.TakeBack():
                with self._held.lock:
                    returned = self._held.take_back(message.count)
                self.link.send(messages.Returned(tuple(returned)))
            case messages.StopCall():
                self._stop(message)
            case _:
                super().received(message)

    def gather(self) -> None:
        """Submits go before the end of the call that made them."""
        super().gather()
        if self._held.ends:
            with self._held.lock:
                report = self._held.done()
                self._ended_bytes = 0
                if report is not None:
                    self.link.send(report)

    def tick(self) -> None:
        """While user code runs: its output, the ends before it, that it runs, that it is to end."""
        super().tick()
        with self._held.lock:
            level = self._stack[-1] if self._stack else None
            if level is not None:
                self._capture.drain_some(level)
                self._page.write(level.ref, level.started, level.printed)
                if not level.reported and self._wall() - level.started >= STARTED_S:
                    self.link.send(self._held.started(level))
        if self._held.ends:
            self.link.flush()
        if self._guard.due():
            self._guard.ask()

    def gone(self, error: Exception) -> None:
        """Nobody would hear of anything any more."""
        if isinstance(error, channel_errors.LinkForked):
            super().gone(error)
        elif self._stack:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os._exit(0)

    def progress(self, ref: attempts.AttemptRef, fraction: float | None, message: str) -> None:
        """A call says how far it is; nobody needs each of it."""
        self.link.send(messages.Progress(ref, fraction, message))

    def yielded(self, ref: attempts.AttemptRef, index: int, payload: attempts.Payload) -> None:
        """A generator has yielded."""
        self.link.send(messages.Yielded(ref, index, payload))

    def _stop(self, order: messages.StopCall) -> None:
        with self._held.lock:
            if self._held.withdraw(order.ref):
                self.link.send(messages.Returned((order.ref,)))
                return
            level = self._held.level(order.ref)
            if level is None:
                return
            level.stop = order.reason
            if level.inner is not None:
                level.inner.stop(order.reason)
        if self._guard.due():
            self._guard.ask()
            self.link.wake()

    def _has_room(self) -> bool:
        """The dispatcher reads what we say."""
        outbox = self.link.outbox
        return self.link.socket is not None and outbox.waiting_bytes < FLUSH_BYTES


_RUN = execution.Execution.run.__code__
