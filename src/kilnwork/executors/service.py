"""An executor that is a process of its own: its link to the dispatcher, and its attempts.

Base of `executors.http.service`, `executors.external` and
`controllers.task_claim.executor_adapter`. Like a worker's agent it follows orders, and the
dispatcher counts its slots. So that no attempt runs in two executors, it halts all attempts before
its lease ends, and starts none without a lease.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Protocol

from kilnwork.api import attempts, reasons
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages, worker_side
from kilnwork.executors import attempt_base
from kilnwork.kit import clock, coroutines, ids

log = logging.getLogger(__name__)

DRAIN_S = 15.0
"""How many seconds attempts may continue after the process was asked to stop."""

LAST_WORDS_S = 2.0
"""How many seconds a stopping process waits until its reports are acknowledged."""

HALT_S = 10.0
"""How many seconds halted attempts may take to end, after `DRAIN_S`."""

_E = attempts.Ending
_LEASE_ENDED = attempt_base.Halt(
    _E.LOST,
    reasons.Reason.WORKER_LOST.value,
    "the executor could not renew its lease, so it ended its attempts",
)
_STOPPING = attempt_base.Halt(
    _E.LOST, reasons.Reason.WORKER_STOPPING.value, "the executor was asked to stop"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """The user's options of an executor.

    `queue`: the queue that it serves. `slots`: concurrent attempts. `namespace`: the only namespace
    that it serves; all if empty.
    """

    queue: str
    name: str
    slots: int
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    pod_uid: str = ""
    session: bytes = b""
    """Session id of 16 bytes of an executor that is started again and continues its attempts;
    empty: a new session."""


class BlobStore(Protocol):
    """A store for blobs (`data.remote_blobs.RemoteBlobs`)."""

    def put(self, digest: bytes, file: Path) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """The connection data of a manager.

    `connect`: as for `channel.worker_side.Peer`; `store`: returns the blobs of a namespace, from
    any thread; `place`: its address, for people.
    """

    connect: Callable[[], socket]
    credential: Callable[[], str]
    store: Callable[[str], BlobStore]
    place: str


class ExecutorService:
    """The process of an executor; implements `channel.worker_side.Owner`. Create it in a running
    event loop.

    `on_failure(text)` is called when it cannot continue: the process should then stop.
    """

    def __init__(
        self,
        settings: ExecutorSettings,
        manager: Manager,
        *,
        time: clock.Clock,
        entropy: ids.Entropy,
        on_failure: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._session = settings.session or ids.new_session()
        self._background = coroutines.BackgroundWork("executor", on_failure=self._failed)
        self._attempts: dict[attempts.AttemptRef, attempt_base.ProcessAttempt] = {}
        self._stopping = False
        self._on_failure = on_failure
        self._failure: channel_errors.ChannelError | None = None
        self._connected = asyncio.Event()
        self.link = worker_side.Peer(
            self,
            path=manager.connect,
            place=lambda: manager.place,
            clock=time,
            entropy=entropy,
        )

    def make(self, run: messages.Run) -> attempt_base.ProcessAttempt:
        """Create the attempt object for an order to run an attempt."""
        raise NotImplementedError

    async def start(self, *, say: Callable[[str], None]) -> None:
        """Connect to the dispatcher. Raises `LinkRefused` or `LinkClosed` if no dispatcher accepts
        this executor.
        """
        say(f"connecting to {self._manager.place}")
        self._background.start("link", self._hold_link())
        await self._connected.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self, *, say: Callable[[str], None]) -> None:
        """Wait a limited time for attempts to end, then halt them; after it returns, nothing runs
        any more.
        """
        self._stopping = True
        if self._attempts:
            say(f"waiting for {len(self._attempts)} attempts")
        try:
            await self._end_all()
            if self._failure is None:
                await self.link.acknowledged(timeout_s=LAST_WORDS_S)
        finally:
            await self._background.stop()

    async def leave(self) -> None:
        """Disconnect at once without a report, so that the same session may reconnect and
        continue.
        """
        await self._background.stop()

    async def keep(self, namespace: str, digest: bytes, file: Path) -> None:
        """Store a result that is too large for a frame. Raises KilnError."""
        await asyncio.to_thread(self._keep, namespace, digest, file)

    def _keep(self, namespace: str, digest: bytes, file: Path) -> None:
        store = self._manager.store(namespace)
        try:
            store.put(digest, file)
        finally:
            store.close()

    # called by the link (`channel.worker_side.Owner`)

    def hello(self, *, epoch: int) -> messages.Hello:
        """Return the Hello message with the identity of this executor and its attempts.

        The token is read each time, since it may have been renewed.
        """
        given = self._settings
        return messages.Hello(
            version=messages.VERSION,
            role="executor",
            session=self._session,
            credential=self._manager.credential(),
            namespace=given.namespace,
            cluster=given.queue,
            worker=given.name,
            pod_uid=given.pod_uid or f"{given.name}/{self._session.hex()}",
            node="",
            slots=given.slots,
            epoch=epoch,
            running=tuple(messages.Running(ref) for ref in self._attempts),
            labels=tuple(sorted(given.labels.items())),
        )

    def welcomed(self, welcome: messages.Welcome) -> None:
        """Continue the attempts that the dispatcher knows, and end all other attempts without a
        report.
        """
        self._connected.set()
        keep = {
            decision.ref: decision.log_offset
            for decision in welcome.decisions
            if decision.verdict is messages.Verdict.KEEP
        }
        for ref, current in list(self._attempts.items()):
            if ref not in keep:
                current.abandon()
                self.link.forget(ref)
                if current.finished.is_set():
                    del self._attempts[ref]
            elif current.finished.is_set():
                current.send_log(keep[ref])
            elif current.seen is not None:
                self.link.send(current.seen)

    def received(self, order: worker_side.Order) -> None:
        match order:
            case messages.Run():
                self._start(order)
            case messages.Stop():
                self._stop(order)
            case messages.Callback():
                current = self._attempts.get(order.ref)
                if current is not None:
                    current.called_back(order)
            case _:
                pass  # other messages, such as acknowledged output, need no action

    def settled(self, ref: attempts.AttemptRef) -> None:
        """Forget an attempt whose end the dispatcher has recorded."""
        self._attempts.pop(ref, None)

    def lease_ended(self) -> None:
        """Halt all attempts shortly before the lease ends, since other executors may then start
        them.
        """
        self._halt_all(_LEASE_ENDED)

    # orders

    def _start(self, run: messages.Run) -> None:
        if run.ref in self._attempts:
            return
        if self._stopping:
            self._refuse(run.ref, _STOPPING)
        elif not self.link.lease_holds:
            self._refuse(run.ref, _LEASE_ENDED)
        else:
            self.begin(run)

    def begin(self, run: messages.Run) -> None:
        """Start an attempt, or continue an attempt that this session had before."""
        current = self._attempts[run.ref] = self.make(run)
        self._background.start(str(run.ref), self._live(current))

    def retire(self) -> None:
        """Accept no more orders to run; the present attempts continue."""
        self._stopping = True
        self._refuse(attempts.AttemptRef(ids.TaskId(bytes(16)), 0, 0), _STOPPING)

    async def _live(self, current: attempt_base.ProcessAttempt) -> None:
        await current.live()
        if current.silent:
            self._attempts.pop(current.ref, None)

    def _refuse(self, ref: attempts.AttemptRef, halt: attempt_base.Halt) -> None:
        """Report that an attempt ended before it began, which is proof that no process of it
        runs."""
        outcome = attempts.Outcome(halt.ending, halt.reason, halt.message)
        self.link.report(lambda serial: messages.Finished(serial, ref, outcome))

    def _stop(self, order: messages.Stop) -> None:
        halt = attempt_base.Halt(_E.STOPPED, order.reason)
        current = self._attempts.get(order.ref)
        if current is None:
            self._refuse(order.ref, halt)
        else:
            current.halt(halt)

    # end of the service

    async def _hold_link(self) -> None:
        try:
            await self.link.serve()
        except channel_errors.ChannelError as error:
            self._failure = error
            started = self._connected.is_set()
            self._connected.set()
            if started:
                self._on_failure(str(error))

    def _failed(self, name: str, error: BaseException) -> None:
        """Handle an internal error: halt all attempts, so that none outlives this process, and
        report the failure.
        """
        self._halt_all(_STOPPING)
        self._on_failure(f"{name}: {error!r}")

    def _halt_all(self, halt: attempt_base.Halt) -> None:
        for current in self._attempts.values():
            current.halt(halt)

    async def _end_all(self) -> None:
        """Wait for attempts to end; attempts whose work runs elsewhere are halted at once."""
        log.info("executor stops", extra={"attempts": len(self._attempts)})
        for current in self._attempts.values():
            if self._failure is not None or (current.seen is not None and current.seen.parked):
                current.halt(_STOPPING)
        try:
            async with asyncio.timeout(0.0 if self._failure is not None else DRAIN_S):
                for current in list(self._attempts.values()):
                    await current.finished.wait()
        except TimeoutError:
            self._halt_all(_STOPPING)
            await self._all_over()

    async def _all_over(self) -> None:
        try:
            async with asyncio.timeout(HALT_S):
                for current in list(self._attempts.values()):
                    await current.finished.wait()
        except TimeoutError:
            log.error("attempts do not end")  # noqa: TRY400
