"""The session of a slot, which receives calls, runs them one at a time, and reports their outcomes.

Used by `slot_process`. It is a `Session` like a driver's, so tasks that a call submits go over the
slot's own link, with the running attempt as parent. The main thread runs user code. Messages are
read by whichever thread waits, or by the link's thread while user code runs. A task that waits for
others releases its slot, and may run the others on top of itself, in place.
"""

import math
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kilnwork.api import attempts, calls, sync_set_env
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import frames, messages
from kilnwork.data import local_blobs
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import errors, futures, session
from kilnwork.worker import (
    call_execution,
    call_waits,
    env_value_requests,
    interrupts,
    slot_call_table,
    slot_output,
    slot_page,
)

FLUSH_ENDS = 64
"""Number of ended calls that are reported without delay."""
FLUSH_BYTES = 256 * 1024
"""Total bytes of results that are reported without delay."""
FLUSH_S = 0.002
"""Maximum seconds for which the report of an ended call is delayed while other calls run; if there
is nothing to run, it is sent at once.
"""

STARTED_S = 0.05
"""Seconds after which a call that still runs is reported as started."""

BUSY_S = 0.001
"""Seconds between two reads of the output of a call that prints as fast as it can."""

TIDY_S = 500e-9
"""Seconds: a function that took less has made no system call, so it has left nothing to clear
away.
"""

PATIENCE_S = math.inf
"""Seconds for which a slot waits for a dispatcher that is away. There is no limit, because the
agent ends its slots when the lease ends.
"""

HOME = "KILN_HOME_ID"
"""Environment variable of the processes that `kiln.start` has started. If it is set, drivers and
slots are on one machine and see the same files.
"""


class SlotSession(session.Session):
    """The session of one slot, which runs its calls; see the module. `work` is the loop of the main
    thread.
    """

    in_slot = True
    tick_s = STARTED_S

    def __init__(  # noqa: PLR0913  as every session
        self,
        *,
        slot: bytes,
        secret: str,
        connect: Callable[[], socket.socket],
        clock: clocks.Clock,
        page: slot_page.SlotPage,
        pipe: tuple[int, int],
        open_blobs: Callable[[str], local_blobs.Blobs] | None = None,
    ) -> None:
        super().__init__(
            connect=connect,
            credential=lambda: secret,
            decode=frames.decode_to_slot,
            clock=clock,
            keep=open_blobs,
            patience_s=PATIENCE_S,
            cluster=os.environ.get(sync_set_env.SPAWN_CLUSTER),
        )
        self.shares_files = self.one_cluster = HOME in os.environ
        self.inherited = dict(os.environ)  # copied before any call can change the environment
        self._slot = slot
        self._page = page
        self._wall, self._monotonic = clock.wall, clock.monotonic
        self._held = slot_call_table.SlotCalls()
        self._stack = self._held.stack
        self._call_templates: dict[int, call_execution.Template] = {}
        self._variables = env_value_requests.VariableRequests(self.link.send, self.link.wait)
        self._execution = call_execution.Execution(self, clock=clock, ask=self._variables.request)
        self._guard = interrupts.Interrupts(self._held, doors=call_execution.USER_CODE_CALLERS)
        self._execution.guard = self._guard
        self._output = slot_output.SlotOutput(
            pipe, page, send=self._send, room=self._is_read, monotonic=self._monotonic
        )
        self._ended_bytes = 0
        self._flush_at = 0.0
        self._forked = False
        # A descriptor stays valid when a call renames or removes the directory.
        self._home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self._waits = call_waits.CallWaits(
            self,
            self._held,
            self._guard,
            clock=clock,
            home=self._home,
            base=call_execution.Execution.run,
        )
        self._recursion = sys.getrecursionlimit()
        os.register_at_fork(after_in_child=self._after_fork)

    # called in the main thread

    def work(self) -> None:
        """Run calls until the link is closed."""
        session.activate(self)
        self._waits.count_threads()
        held = self._held
        while True:
            level = self.begin(held.queue)
            if level is not None:
                self.run(level, self._home)
            else:
                # A slot that dies while it waits for calls must blame no attempt.
                self._page.clear()
                self.link.wait(lambda: bool(held.queue))

    def begin(self, waiting: deque[calls.CallRun]) -> slot_call_table.StackLevel | None:
        """Move the first queued call to the top of the stack and return it; None if the queue is
        empty.
        """
        held = self._held
        with held.lock:
            if not waiting:
                return None
            # The output so far belongs to the call below.
            if self._stack:
                self.settle(self._stack[-1])
            level = slot_call_table.StackLevel(waiting.popleft(), self._wall())
            # Before user code can run: the agent reads the page when this process dies.
            self._page.write(level.ref, level.started)
            self._stack.append(level)
        return level

    def run(self, level: slot_call_table.StackLevel, where: int) -> None:
        """Run a call to its end, and queue the report of its outcome.

        `where`: the working directory to restore afterwards, as a descriptor.
        """
        template = self._call_templates.get(level.run.template)
        before = self.environment
        try:
            if template is None:
                raise errors.KilnError("a call came before its template")
            self.environment = template.call.environment
            end = self._execution.run(level, template)
        except BaseException as error:  # noqa: BLE001  an interrupt that came a moment late
            # First: a second interrupt must not come while the outcome is made.
            self._guard.user = False
            end = self._execution.failed(level, error, template)
        self.environment = before
        # A function that calls os.fork returns in the child as well.
        if self._forked:
            self._leave_fork(end)
        if level.seconds > TIDY_S:
            self._tidy(where)
        if level.raised:
            self._look_for_children()
        held = self._held
        with held.lock:
            self.settle(level)
            held.pop(end)
            if self._stack:
                below = self._stack[-1]
                self._page.write(below.ref, below.started, below.printed)
        # Without the lock, which `gather` takes.
        self._report(end)

    def settle(self, level: slot_call_table.StackLevel) -> None:
        """Assign all output so far to a call; the caller must hold the lock."""
        if self._output.settle(level):
            self._page.write(level.ref, level.started, level.printed)

    def _report(self, end: calls.CallEnd) -> None:
        """Queue the report of a call's end, and send it soon even if other calls continue to
        run.
        """
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
        """Undo the changes of a call to the process that would disturb the next call or the call
        below.

        `where`: the working directory, as a descriptor.
        """
        os.fchdir(where)
        self._output.repair()
        self._guard.repair()
        self._waits.count_threads()
        if sys.getrecursionlimit() < self._recursion:
            sys.setrecursionlimit(self._recursion)

    def _look_for_children(self) -> None:
        """Kill this process if an interrupted call has left child processes that run: nothing else
        ends them.
        """
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            # 0: a child exists, and still runs.
            if pid == 0:
                self._die()

    def _die(self) -> None:
        """Kill this process.

        Then the zygote kills all processes that this process has started, and the agent reports
        which attempt ran.
        """
        with self._held.lock:
            if self._stack:
                self.settle(self._stack[-1])
        self.link.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def _after_fork(self) -> None:
        self._forked = True

    def _leave_fork(self, end: calls.CallEnd) -> None:
        """Exit this process, in which a function that has called os.fork has returned as the child.

        This process is not the slot, and must report nothing.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if end.ending is call_execution.SUCCEEDED else 1)

    # session.Session: called by tasks, in any thread

    def block(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        tasks: Sequence[ids.TaskId],
        *,
        first: bool = False,
    ) -> bool:
        """Release the slot and wait until `done()` returns True; return False if the timeout
        expires first.

        In the main thread, the awaited task may run on the stack of the waiting task, and Cancelled
        is raised when the waiting task must end.
        """
        if done():
            return True
        if not self._stack:
            return self.link.wait(done, timeout_s)
        return self._waits.block(done, timeout_s, tasks, first=first)

    def suspended(self, tasks: Sequence[ids.TaskId]) -> None:
        """Release the slot while a coroutine of the task awaits other tasks, until `resumed` is
        called.

        Other coroutines of the task may run meanwhile.
        """
        if self._stack:
            self._waits.release_slot(self._stack[-1], tasks, in_place=False)

    def resumed(self) -> None:
        if self._stack:
            self._waits.resume(self._stack[-1])

    def parent(self, function: str, *, keyed: bool) -> tuple[attempts.AttemptRef | None, int]:
        """Return the parent of a task that is being submitted, which is the running attempt, and an
        ordinal.

        The ordinal is that of this submission of `function` within the attempt, from 1; 0 if
        `keyed`.
        """
        if not self._stack:
            raise errors.NotInTask(
                "a thread that a task has left behind cannot submit: its task is over"
            )
        level = self._stack[-1]
        return level.ref, 0 if keyed else level.next_ordinal(function)

    def loaded(self) -> None:
        """Count the threads of libraries again, because an import may have started some."""
        self._waits.count_threads()

    def needed(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        """Wait for a task whose result was not sent along with the call, and return its future."""
        found = self.future(task_id)
        self.block(found.done, None, (task_id,))
        return found

    # client.Handler: called in whichever thread reads

    def hello(self, epoch: int) -> messages.SlotHello:
        """Return the Hello message of the slot, with every attempt that it holds."""
        with self._held.lock:
            refs = self._held.refs()
        return messages.SlotHello(messages.VERSION, self._slot, self._credential(), epoch, refs)

    def attached(self, message: messages.Attached) -> list[frames.Sent]:
        """Return the messages to send first on a new link.

        These are the messages of any submitter, then waits, output, reports of starts and ends of
        calls, and requests for variables that have no response yet.
        """
        held = self._held
        # Under the lock for the reason that `gather` gives.
        with held.lock:
            first_messages = super().attached(message)
            if held.drop(set(message.unknown)):
                # A call that runs can be dropped only by the end of this process.
                os.kill(os.getpid(), signal.SIGKILL)
            first_messages += [
                level.announced for level in self._stack if level.announced is not None
            ]
            known = set(held.refs())
            first_messages += [log for log in self._output.kept_logs if log.ref in known]
            first_messages += held.reports()
        return [*first_messages, *self._variables.pending()]

    def received(self, message: Any) -> None:
        """Handle a message: calls, orders about them, or messages that every submitter receives."""
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
                self._call_templates[message.number] = call_execution.Template(message.spec)
            case messages.Forget():
                # Calls that are queued or run may still need these templates.
                with self._held.lock:
                    needed = self._held.templates()
                for number in set(message.numbers) - needed:
                    self._call_templates.pop(number, None)
            case messages.TakeBack():
                with self._held.lock:
                    returned = self._held.take_back(message.count)
                self.link.send(messages.Returned(tuple(returned)))
            case messages.StopCall():
                self._stop(message)
            case messages.Response():
                self._variables.resolve(message)
            case _:
                super().received(message)

    def gather(self) -> None:
        """Send the tasks that a call has submitted, before the report of its end.

        Holds the lock: otherwise a call could submit and end in the main thread while another
        thread is here, and its children would arrive after its end and be refused.
        """
        if not self._held.ends:
            super().gather()
            return
        with self._held.lock:
            super().gather()
            report = self._held.report_ends()
            self._ended_bytes = 0
            if report is not None:
                self.link.send(report)

    def tick(self) -> None:
        """Send the output of the running call, the report of its start, and ends of earlier calls;
        interrupt the call if it must end.

        Called at intervals while user code runs.
        """
        super().tick()
        with self._held.lock:
            level = self._stack[-1] if self._stack else None
            tick_s, self.tick_s = self.tick_s, STARTED_S
            if level is not None:
                busy = self._output.drain_some(level)
                # Double the interval at most: the pipe may be empty for a moment, and full a
                # millisecond later.
                self.tick_s = BUSY_S if busy else min(2 * tick_s, STARTED_S)
                self._page.write(level.ref, level.started, level.printed)
                if not level.reported and self._wall() - level.started >= STARTED_S:
                    self.link.send(self._held.report_start(level))
        # Without the lock, which `gather` takes.
        if self._held.ends:
            self.link.flush()
        if self._guard.due():
            self._guard.ask()

    def link_ended(self, error: Exception) -> None:
        """Exit the process after the link has ended, because nothing can be reported any more."""
        if isinstance(error, channel_errors.LinkForked):
            # This is a child that a task has forked: the slot itself goes on.
            super().link_ended(error)
        elif self._stack:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os._exit(0)

    def progress(self, ref: attempts.AttemptRef, fraction: float | None, message: str) -> None:
        """Send the progress of a call; the message may be lost."""
        self.link.send(messages.Progress(ref, fraction, message))

    def yielded(self, ref: attempts.AttemptRef, index: int, payload: attempts.Payload) -> None:
        self.link.send(messages.Yielded(ref, index, payload))

    def _stop(self, order: messages.StopCall) -> None:
        with self._held.lock:
            if self._held.withdraw(order.ref):
                self.link.send(messages.Returned((order.ref,)))
                return
            level = self._held.level(order.ref)
            if level is None:
                return
            self._held.stop(level, order.reason)
        if self._guard.due():
            self._guard.ask()
            # Wake a main thread that waits, which then checks `due`.
            self.link.wake()

    def _is_read(self) -> bool:
        """Return whether the dispatcher reads what is sent; output waits until it does."""
        outbox = self.link.outbox
        return self.link.socket is not None and outbox.waiting_bytes < FLUSH_BYTES
