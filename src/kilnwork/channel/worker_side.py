"""A worker's end of a link: connects, renews the lease, sends reports, and resumes after a
reconnect.

Used by the worker's agent, by executor processes, and by the sidecar of an attempt in a Pod (for
which the lease only shows that the dispatcher is there). One `Peer` outlives many links: it
reconnects with back-off, keeps every report until the dispatcher has stored it, sends
unacknowledged reports again after a reconnect, and watches the lease by the monotonic clock. Its
`Owner` decides about attempts.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from kilnwork.api import attempts
from kilnwork.channel import errors, frames, messages, worker_side_lease
from kilnwork.kit import backoff, clock, ids

log = logging.getLogger(__name__)

Order = (
    messages.Run
    | messages.Stop
    | messages.LogKept
    | messages.OpenSlot
    | messages.KillSlot
    | messages.ContainerSeen
    | messages.KillContainer
    | messages.Callback
)
Sendable = (
    messages.Log
    | messages.Progress
    | messages.SlotOpening
    | messages.StartContainer
    | messages.StopContainer
    | messages.Observed
)
"""Messages that may be lost with a link."""
Report = messages.Started | messages.Finished | messages.SlotGone
Request = messages.Spawn | messages.GetTask | messages.GetVariables

RECONNECT = backoff.Backoff(base_s=0.05, max_s=1.0, jitter=0.2)
HANDSHAKE_S = 5.0
"""Maximum seconds to wait for Welcome; then the next connection is tried: a dispatcher that hangs
must not keep the peer from its successor.
"""

READ_BYTES = 1 << 16

CONGESTED_BYTES = 1 << 20
"""Number of unsent bytes above which messages that may be dropped are dropped."""


class Owner(Protocol):
    """The user of a peer: carries out its orders.

    Its methods run in the event loop; they must not block or raise.
    """

    def hello(self, *, epoch: int) -> messages.Hello | messages.AttemptHello:
        """Return the Hello of a new link, which names all attempts that run or are not
        acknowledged.
        """
        ...

    def welcomed(self, welcome: messages.Welcome) -> None:
        """Carry out the dispatcher's decisions and send logs again.

        The peer itself sends reports again.
        """
        ...

    def received(self, order: Order) -> None:
        """Carry out an order of the dispatcher."""
        ...

    def settled(self, ref: attempts.AttemptRef) -> None:
        """Handle that the dispatcher has stored the end of the attempt `ref`."""
        ...

    def lease_ended(self) -> None:
        """End all attempts now: the lease is about to end, and then other workers may start
        them.
        """
        ...


@dataclass(slots=True)
class _Kept:
    """A report that is not acknowledged yet.

    `ref`: the attempt that the report is about; None for a report about a slot.
    """

    ref: attempts.AttemptRef | None
    frame: bytes
    final: bool
    stored: asyncio.Future[None] | None = None
    """Future that is resolved when the dispatcher has stored the report; None if no `store` waits
    for it.
    """


@dataclass(slots=True)
class _Asked:
    """A request that has no response yet; it is encoded again for each link."""

    make: Callable[[int], Request]
    response: asyncio.Future[messages.Response]


class _Link(asyncio.Protocol):
    """One connection to the dispatcher: cuts bytes into frames, passes on messages, notices its
    end.
    """

    def __init__(self, received: Callable[["_Link", messages.ToWorker], None]) -> None:
        self._received = received
        self._cutter = frames.Cutter()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self.hello_sent = float("inf")
        self.welcome: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[BaseException | None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._cutter.feed(data):
                # An earlier frame of this read has closed the link: the others must not be carried
                # out.
                if self.closed.done():
                    return
                self._received(self, frames.decode_to_worker(body))
        except errors.ChannelError as error:
            self.abort(error)

    def connection_lost(self, exc: BaseException | None) -> None:
        if isinstance(exc, ConnectionError):
            self._read_rest()
        self._end(exc)

    def _read_rest(self) -> None:
        """Read the bytes that the other end wrote before it closed the connection.

        asyncio drops these bytes when a write fails, and the last message may announce that no
        dispatcher will follow.
        """
        if self._transport is None:
            return
        with contextlib.suppress(OSError):
            # The socket is non-blocking: with nothing left to read, BlockingIOError ends the loop.
            while data := os.read(self._transport.get_extra_info("socket").fileno(), READ_BYTES):
                self.data_received(data)

    def write(self, frame: bytes) -> None:
        """Send a frame together with all other frames written in this turn of the event loop."""
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(frame)

    def flush(self) -> None:
        """Pass the written frames to the transport, unless it is closed, since uvloop's then
        raises.
        """
        if self._unsent and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def abort(self, error: BaseException | None = None) -> None:
        """Close the connection at once.

        `error`: the reason.
        """
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection after all written frames were sent."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes are buffered because the other end does not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _end(self, error: BaseException | None) -> None:
        if not self.closed.done():
            self.closed.set_result(error)
        if not self.welcome.done():
            self.welcome.set_exception(error or errors.LinkClosed())
            self.welcome.exception()  # read once: asyncio logs exceptions that are never read


class Peer:
    """A worker's lasting end of the link to the dispatcher, over many connections; see the module.

    `path`: the dispatcher's Unix socket, or a function that returns a connected socket; the
    function runs in a thread and may raise OSError or ChannelError. `place`: a function that
    returns the address to name in messages. `patience_s`: stop after this long without a
    dispatcher, but not while the lease holds. The default is 60 s: a restart takes less, and no
    process should outlive a crash for longer.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        path: str | Callable[[], socket.socket],
        clock: clock.Clock,
        entropy: ids.Entropy,
        patience_s: float = 60.0,
        place: Callable[[], str] | None = None,
    ) -> None:
        self._owner = owner
        self._path = path
        self._place = place or (lambda: str(path))
        self._clock = clock
        self._entropy = entropy
        self._patience_s = patience_s
        self._epoch = 0
        self._serial = 0
        self._renewal = 0
        self._renew_s = 3.0
        self._lease = worker_side_lease.Lease()
        self._link: _Link | None = None
        self._resuming = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reports: dict[int, _Kept] = {}
        self._requests: dict[int, _Asked] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def serve(self) -> None:
        """Hold a link to the dispatcher, and reconnect, until cancelled.

        Raises `LinkRefused` when the dispatcher refuses the peer for good, `LinkClosed` when there
        was no dispatcher for `patience_s` and the lease has ended.
        """
        away_since = self._clock.monotonic()
        failures = 0
        try:
            while True:
                stood, refused = await self._try_link()
                now = self._clock.monotonic()
                # Not 0 after a link that was welcomed: a dispatcher that drops every link is not
                # called again at once.
                failures = 1 if stood else failures + 1
                if stood or refused:
                    away_since = now
                elif now - away_since > self._patience_s and not self.lease_holds:
                    raise errors.LinkClosed(
                        f"no dispatcher at {self._place()} for {self._patience_s} s"
                    )
                await asyncio.sleep(RECONNECT.delay_s(failures, entropy=self._entropy))
        finally:
            self._close()

    def send(self, message: Sendable) -> None:
        """Send a message if there is a link; otherwise drop it."""
        if self._link is not None:
            self._link.write(frames.encode(message))

    @property
    def congested(self) -> bool:
        """Return whether so many bytes are unsent that messages which may be dropped should not be
        sent now.
        """
        return self._link is None or self._link.unsent_bytes > CONGESTED_BYTES

    @property
    def lease_holds(self) -> bool:
        """Return whether the lease holds, so that attempts may be started."""
        return self._clock.monotonic() < self._lease.stop_at

    async def store(self, make: Callable[[int], Report]) -> None:
        """Send a report, and wait until the dispatcher has stored it."""
        stored = asyncio.get_running_loop().create_future()
        self.report(make)
        # Nothing was awaited since, so `_serial` is still the number of this report.
        self._reports[self._serial].stored = stored
        await stored

    def report(self, make: Callable[[int], Report]) -> None:
        """Send the report that `make` returns for a serial, on each new link until it is
        acknowledged.
        """
        self._serial += 1
        message = make(self._serial)
        kept = _Kept(
            ref=None if isinstance(message, messages.SlotGone) else message.ref,
            frame=frames.encode(message),
            final=isinstance(message, messages.Finished),
        )
        self._reports[self._serial] = kept
        self._quiet.clear()
        # While resuming, `_resume` sends this report among all others, in the order of the serials.
        if self._link is not None and not self._resuming:
            self._link.write(kept.frame)

    async def request(self, make: Callable[[int], Request]) -> messages.Response:
        """Send a request, on as many links as necessary, and return the response.

        `make` is called again for each link. The call may be cancelled. Raises `FrameTooLarge`.
        """
        self._serial += 1
        serial = self._serial
        frame = frames.encode(make(serial))
        asked = _Asked(make=make, response=asyncio.get_running_loop().create_future())
        self._requests[serial] = asked
        if self._link is not None and not self._resuming:
            self._link.write(frame)
        try:
            return await asked.response
        finally:
            del self._requests[serial]

    def forget(self, ref: attempts.AttemptRef) -> None:
        """Drop the unacknowledged reports of an attempt that the dispatcher does not know."""
        self._reports = {s: kept for s, kept in self._reports.items() if kept.ref != ref}
        self._look_quiet()

    async def acknowledged(self, *, timeout_s: float) -> bool:
        """Wait until every report is acknowledged; return False after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True

    async def _try_link(self) -> tuple[bool, bool]:
        """Connect, and hold the link until it closes; return (was it welcomed, was it refused for
        now).
        """
        try:
            link = await self._stand()
        except errors.LinkRefused as error:
            if not error.retry:
                raise
            log.warning("dispatcher refuses the link for now", extra={"why": str(error)})
            return False, True
        except (OSError, TimeoutError, errors.ChannelError) as error:
            facts = {"dispatcher": self._place(), "why": str(error) or type(error).__name__}
            log.info("no link to the dispatcher", extra=facts)
            return False, False
        why = await link.closed
        self._link = None
        # Not the timer of the lease: the lease continues without a link.
        self._cancel_timer("renew")
        if isinstance(why, errors.LinkRefused) and not why.retry:
            raise why
        log.warning("link to the dispatcher lost", extra={"why": str(why or "closed by it")})
        return True, False

    async def _stand(self) -> _Link:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANDSHAKE_S):
            if isinstance(self._path, str):
                _, link = await loop.create_unix_connection(
                    lambda: _Link(self._received), self._path
                )
            else:
                made = await _in_thread(self._path)
                _, link = await loop.create_connection(lambda: _Link(self._received), sock=made)
            try:
                # Before the Hello is sent: the lease counts from then, so it ends here before it
                # ends there.
                link.hello_sent = self._clock.monotonic()
                link.write(frames.encode(self._owner.hello(epoch=self._epoch)))
                await link.welcome
            except BaseException as error:
                # `_resume` sets it before the handshake is over.
                self._link = None
                link.abort(error if isinstance(error, Exception) else None)
                raise
        return link

    def _resume(self, link: _Link, welcome: messages.Welcome) -> None:
        if welcome.epoch < self._epoch:
            raise errors.LinkClosed("this dispatcher is older than the last one")
        self._epoch = welcome.epoch
        self._renew_s = welcome.renew_s
        self._lease.begin(welcome.lease_s, sent=link.hello_sent)
        self._link = link
        # Reports made by `welcomed` are sent below with all others, in the order of their serials.
        self._resuming = True
        self._owner.welcomed(welcome)
        self._resuming = False
        for kept in self._reports.values():
            link.write(kept.frame)
        for serial, asked in self._requests.items():
            link.write(frames.encode(asked.make(serial)))
        self._set_timer("renew", self._renew_s, self._renew)
        self._watch_lease()
        log.info("link to the dispatcher stands", extra={"epoch": welcome.epoch})

    def _received(self, link: _Link, message: messages.ToWorker) -> None:
        if not link.welcome.done():
            self._greeted(link, message)
        elif isinstance(message, Order):
            self._owner.received(message)
        elif isinstance(message, messages.Acknowledged):
            self._acknowledge(message.serial)
        elif isinstance(message, messages.Response):
            asked = self._requests.get(message.serial)
            # A cancelled request is removed only when its coroutine runs again.
            if asked is not None and not asked.response.done():
                asked.response.set_result(message)
        elif isinstance(message, messages.Renewed):
            self._lease.granted(message.number)
        elif isinstance(message, messages.Refused):
            link.abort(errors.LinkRefused(message.reason, message.message, retry=message.retry))
        else:
            raise errors.MalformedFrame(f"a {type(message).__name__} at the wrong time")

    def _greeted(self, link: _Link, message: messages.ToWorker) -> None:
        if isinstance(message, messages.Welcome):
            self._resume(link, message)
            link.welcome.set_result(None)
        elif isinstance(message, messages.Refused):
            link.abort(errors.LinkRefused(message.reason, message.message, retry=message.retry))
        else:
            raise errors.MalformedFrame(f"a {type(message).__name__} before the Welcome")

    def _acknowledge(self, serial: int) -> None:
        settled = []
        # A dict keeps the order of insertion, which is that of the serials.
        while self._reports and (oldest := next(iter(self._reports))) <= serial:
            kept = self._reports.pop(oldest)
            if kept.stored is not None and not kept.stored.done():
                kept.stored.set_result(None)
            if kept.final and kept.ref is not None:
                settled.append(kept.ref)
        self._look_quiet()
        for ref in settled:
            self._owner.settled(ref)

    def _look_quiet(self) -> None:
        if not self._reports:
            self._quiet.set()

    def _renew(self) -> None:
        if self._link is None:
            return
        self._renewal += 1
        # The time is recorded before the write: the lease counts from no later than the send.
        self._lease.sent(self._renewal, at=self._clock.monotonic())
        self._link.write(frames.encode(messages.Renew(self._renewal)))
        self._set_timer("renew", self._renew_s, self._renew)

    def _watch_lease(self) -> None:
        left_s = self._lease.stop_at - self._clock.monotonic()
        if left_s > 0:
            # The lease was renewed since this timer was set.
            self._set_timer("lease", left_s, self._watch_lease)
            return
        log.warning("the lease ends: it was not renewed")
        self._owner.lease_ended()
        if self._link is not None:
            self._link.abort(errors.LinkClosed("the dispatcher did not renew the lease"))

    def _set_timer(self, name: str, after_s: float, call: Callable[[], None]) -> None:
        self._cancel_timer(name)
        self._timers[name] = asyncio.get_running_loop().call_later(after_s, call)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _close(self) -> None:
        for name in list(self._timers):
            self._cancel_timer(name)
        if self._link is not None:
            self._link.close()
            self._link = None


async def _in_thread(connect: Callable[[], socket.socket]) -> socket.socket:
    """Call `connect` in a thread; if this call is cancelled meanwhile, the thread closes the
    socket.
    """
    made: list[socket.socket] = []
    abandoned: list[bool] = []

    def run() -> None:
        made.append(connect())
        if abandoned:
            made[0].close()

    try:
        await asyncio.to_thread(run)
    except BaseException:
        # A thread cannot be cancelled: it connects all the same, and then finds this entry.
        abandoned.append(True)
        for one in made:
            # The thread may close the socket too, which does no harm.
            one.close()
        raise
    return made[0]
