"""`python -m kilnwork.worker.pod_call`: runs the Python call of an attempt in a Pod of its own.

Started by executor `pod` as the only container of the Pod. It opens the same kind of session as a
slot, for a single call: it receives function and arguments over its link to the dispatcher, submits
children in the name of the attempt, and reports how the call ended. The process exits only once the
dispatcher has stored that report, and waits for a dispatcher that is away. SIGTERM raises Cancelled
in the function, and nothing is reported: the executor knows why it ended the Pod. Exit codes: 0 the
call returned, or the attempt had already ended; 1 it raised, or its result could not be stored; 143
asked to stop; 70 refused by the dispatcher.
"""

import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from kilnwork.api import attempts, calls, manager_access, reasons
from kilnwork.channel import blocking_link, frames, http_upgrade, messages
from kilnwork.channel import errors as channel_errors
from kilnwork.data import cached_blobs, local_blobs, remote_blobs
from kilnwork.kit import clock as clocks
from kilnwork.kit import http1_client, ids, logs, mount_path_resolution, scratch
from kilnwork.sdk import errors, futures, session
from kilnwork.worker import (
    call_execution,
    interrupts,
    manager_connector,
    slot_call_table,
    slot_process,
)

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Seconds between two checks by a waiting call whether it must end."""

TICK_S = 0.05
"""Seconds between two attempts to interrupt a call that must end and could not be interrupted where
it was.
"""

CONNECT_S = 10.0

RETURNED, RAISED, REFUSED = 0, 1, 70
STOPPED = 128 + signal.SIGTERM

_DIRECTORY_PREFIX = "kiln-c-"
_UNIX = "unix:"
_OWN_VARIABLES = (
    "KILN_TOKEN_FILE", "KILN_NAMESPACE", "KILN_CHANNEL", "KILN_CA", "KILN_BLOBS", "KILN_POD",
)  # fmt: skip
"""Environment variables for this program itself: processes that the function starts do not inherit
them.
"""


class PodCallSettings(NamedTuple):
    """Settings of the call's process, from the Pod's `KILN_…` variables.

    `shares_blobs`: whether the manager's directory of blobs is mounted here. The other fields: see
    `sidecar_settings.SidecarSettings`.
    """

    token_file: Path
    attempt: tuple[str, int, int]
    namespace: str
    pod: str
    channel: str
    ca: str
    shares_blobs: bool

    @property
    def ref(self) -> attempts.AttemptRef:
        task, run, attempt = self.attempt
        return attempts.AttemptRef(ids.task_id(task), run, attempt)


def from_environment(environment: Mapping[str, str]) -> PodCallSettings:
    """Read the settings from environment variables, which the executor sets.

    Only KILN_CA and KILN_BLOBS may be missing. Raises KeyError or ValueError.
    """
    return PodCallSettings(
        token_file=mount_path_resolution.locate(Path(environment["KILN_TOKEN_FILE"]), environment),
        attempt=(
            environment["KILN_TASK_ID"],
            int(environment["KILN_RUN"]),
            int(environment["KILN_ATTEMPT"]),
        ),
        namespace=environment["KILN_NAMESPACE"],
        pod=environment["KILN_POD"],
        channel=environment["KILN_CHANNEL"],
        ca=environment.get("KILN_CA", ""),
        shares_blobs=bool(environment.get("KILN_BLOBS")),
    )


class PodCall(session.Session):
    """The session of the Pod's single call, and the main loop of the process. Implements
    `call_execution.Owner`.
    """

    in_slot = True
    shares_files = False
    tick_s = TICK_S

    def __init__(
        self,
        given: PodCallSettings,
        *,
        connect: Callable[[], socket.socket],
        open_blobs: Callable[[str], local_blobs.Blobs] | None,
    ) -> None:
        clock = clocks.SystemClock()
        super().__init__(
            connect=connect,
            credential=lambda: given.token_file.read_text().strip(),
            namespace=given.namespace,
            decode=frames.decode_to_slot,
            clock=clock,
            patience_s=math.inf,
            keep=open_blobs,
        )
        self._given = given
        self._ref = given.ref
        self._wall, self._monotonic = clock.wall, clock.monotonic
        self._held = slot_call_table.SlotCalls()
        self._guard = interrupts.Interrupts(self._held, doors=call_execution.USER_CODE_CALLERS)
        self._execution = call_execution.Execution(self, clock=clock, min_measured_s=0.0)
        self._execution.guard = self._guard
        self._templates_by_number: dict[int, call_execution.Template] = {}
        self._call: calls.CallRun | None = None
        self._report: messages.CallsEnded | None = None
        self._is_acknowledged = False
        self._is_over = False
        self._main = threading.get_ident()
        self._forked = False
        signal.signal(signal.SIGTERM, self._terminate)
        os.register_at_fork(after_in_child=self._after_fork)

    # called in the main thread

    def work(self) -> int:
        """Run the call and report its outcome; return the exit code."""
        self.link.open(timeout_s=math.inf)
        session.activate(self)
        self.link.wait(lambda: self._call is not None or self._is_over)
        if self._call is None:
            log.warning("this attempt is over", extra={"attempt": str(self._ref)})
            return RETURNED
        end = self._run(self._call)
        if self._forked:
            _exit(RETURNED if end.ending is call_execution.SUCCEEDED else RAISED)
        if end.ending is call_execution.STOPPED:
            return STOPPED
        self.link.flush()  # tasks that it has submitted must precede its end
        self._report = messages.CallsEnded(1, (end,))
        self.link.send(self._report)
        self.link.wait(lambda: self._is_acknowledged or self._is_over)
        return RETURNED if end.ending is call_execution.SUCCEEDED else RAISED

    def _run(self, run: calls.CallRun) -> calls.CallEnd:
        level = slot_call_table.StackLevel(run, self._wall())
        template = self._templates_by_number[run.template]
        self.environment = template.call.environment
        self._held.stack.append(level)
        try:
            return self._execution.run(level, template)
        except BaseException as error:  # noqa: BLE001  an interrupt that came a moment late
            self._guard.user = False
            return self._execution.failed(level, error, template)
        finally:
            level.over = True
            self._held.stack.clear()
            self._held.stops.clear()

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: interrupt the function, or exit if no call has arrived.

        If the function has ended already, its end is still reported.
        """
        if self._call is None:
            # No user code has begun.
            os._exit(STOPPED)
        for level in self._held.stack:
            self._held.stop(level, reasons.Reason.KILLED)
            self._guard.ask()

    def _after_fork(self) -> None:
        """Record that this is a child process, which must report nothing: the function may return
        in it.
        """
        self._forked = True
        # The child may execute other programs, which SIGTERM must end as usual.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # session.Session: called by the task, in any thread

    def block(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        tasks: Sequence[ids.TaskId],
        *,
        first: bool = False,
    ) -> bool:
        """Wait until `done()` returns True; return False if the timeout expires first.

        In the main thread, raises Cancelled when the task must end.
        """
        if threading.get_ident() != self._main:
            return self.link.wait(done, timeout_s)
        until = None if timeout_s is None else self._monotonic() + timeout_s
        guard = self._guard
        # Not user code any more; Cancelled is raised below instead.
        user, guard.user = guard.user, False
        try:
            while True:
                left_s = LOOK_S if until is None else min(LOOK_S, until - self._monotonic())
                self.link.wait(lambda: done() or guard.due(), left_s)
                if guard.due():
                    raise guard.cancelled()
                if done():
                    return True
                if until is not None and self._monotonic() >= until:
                    return False
        finally:
            guard.user = user

    def parent(self, function: str, *, keyed: bool) -> tuple[attempts.AttemptRef | None, int]:
        """Return the parent of a task that is being submitted, which is this attempt, and an
        ordinal.

        The ordinal is that of this submission of `function` within the attempt, from 1; 0 if
        `keyed`.
        """
        if not self._held.stack:
            raise errors.NotInTask(
                "a thread that a task has left behind cannot submit: its task is over"
            )
        return self._ref, 0 if keyed else self._held.stack[-1].next_ordinal(function)

    def loaded(self) -> None:
        """Do nothing, because the threads of libraries are not counted here."""

    def needed(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        """Wait for a task whose result was not sent along with the call, and return its future."""
        found = self.future(task_id)
        self.block(found.done, None, (task_id,))
        return found

    def progress(self, ref: attempts.AttemptRef, fraction: float | None, message: str) -> None:
        """Send the progress of the call."""
        self.link.send(messages.Progress(ref, fraction, message))

    def yielded(self, ref: attempts.AttemptRef, index: int, payload: attempts.Payload) -> None:
        self.link.send(messages.Yielded(ref, index, payload))

    # client.Handler: called in whichever thread reads

    def hello(self, epoch: int) -> messages.AttemptHello:
        """Return the Hello message of this attempt.

        The token is read each time, since the kubelet renews it.
        """
        given = self._given
        return messages.AttemptHello(
            version=messages.VERSION,
            ref=self._ref,
            credential=self._credential(),
            namespace=given.namespace,
            pod=given.pod,
            epoch=epoch,
            runs_call=True,
        )

    def attached(self, message: messages.Attached) -> list[frames.Sent]:
        """Return the messages to send first on a new link.

        These are the messages of any submitter, and the report of the call's end if it is not
        stored.
        """
        first_messages = super().attached(message)
        self._is_over = self._ref in message.unknown
        if self._report is not None:
            first_messages.append(self._report)
        return first_messages

    def received(self, message: Any) -> None:
        """Handle a message of the dispatcher.

        Only the first `Calls` message sets the call; the dispatcher may send it again.
        """
        match message:
            case messages.Template():
                self._templates_by_number[message.number] = call_execution.Template(message.spec)
            case messages.Calls():
                if self._call is None:
                    self._call = message.runs[0]
            case messages.Acknowledged():
                self._is_acknowledged = True
            case _:
                super().received(message)

    def tick(self) -> None:
        super().tick()
        if self._guard.due():
            self._guard.ask()

    def link_ended(self, error: Exception) -> None:
        """Exit the process after the link has ended, because nothing can be reported any more."""
        if isinstance(error, channel_errors.LinkForked):
            super().link_ended(error)
            return
        print(f"no dispatcher for attempt {self._ref}: {error}", file=sys.stderr, flush=True)
        os._exit(REFUSED)


def _session(given: PodCallSettings, directory: Path) -> PodCall:
    """Return a session that is connected to the dispatcher over its Unix socket, or over TLS with a
    blob cache in `directory`.
    """
    if given.channel.startswith(_UNIX):
        path = given.channel.removeprefix(_UNIX)
        return PodCall(given, connect=lambda: blocking_link.unix(path), open_blobs=None)
    connector = manager_connector.ManagerConnector(given, lambda: CONNECT_S)

    def connect() -> socket.socket:
        headers = {"Host": manager_access.SERVER_NAME}
        try:
            return http_upgrade.switch(connector.connect(), manager_access.CHANNEL_PATH, headers)
        except http1_client.BadResponse as error:
            raise channel_errors.LinkClosed(str(error)) from error

    def open_blobs(namespace: str) -> local_blobs.Blobs:
        store = remote_blobs.RemoteBlobs(connector, path=f"/blobs/{namespace}", patience_s=math.inf)
        return cached_blobs.CachedBlobs(directory / namespace, store)

    return PodCall(given, connect=connect, open_blobs=None if given.shares_blobs else open_blobs)


def _exit(code: int) -> NoReturn:
    """Exit at once, so that threads that the function left behind do not keep the Pod running."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> int:
    """Run the call of this Pod; return the exit code."""
    logs.setup()
    slot_process.quieten_logs()
    given = from_environment(os.environ)
    for name in _OWN_VARIABLES:
        os.environ.pop(name, None)
    # Without a terminal Python would buffer blocks, which a Pod that is killed would lose.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    directory = scratch.Scratch(_DIRECTORY_PREFIX)
    try:
        return _session(given, directory.path).work()
    finally:
        directory.close()


if __name__ == "__main__":
    _exit(main())
