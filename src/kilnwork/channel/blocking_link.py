"""The blocking end of a link, for drivers and slots, whose threads wait for results.

Used by `sdk` (drivers) and by the worker (slots, call processes). There is no event loop: a thread
that waits for a result reads the socket itself (`read_turns`). One background thread
(`link_thread`) reads when no other thread waits, writes frames that were not flushed, and
reconnects with back-off. A link outlives many connections; on each new connection its `Handler`
(`sdk.session`) sends again the messages that must not be lost. An exception while a frame is
handled (Ctrl-C) closes the connection, and the next connection resynchronizes both ends. After a
fork, the child cannot use its copy of the link.
"""

import contextlib
import os
import select
import socket
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from kilnwork.channel import errors, frames, link_thread, messages, read_turns, socket_write_queue
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)

READ_BYTES = 1 << 16
"""Maximum bytes per read. A larger buffer would be requested from the kernel for each read
(malloc's M_MMAP_THRESHOLD).
"""

WRITE_BYTES = 1 << 14
"""Number of queued bytes at which a sender writes at once, rather than wait for frames of other
senders.
"""

CLOSING_S = 2.0
"""Maximum seconds for which `close` tries to write the queued frames."""


class Handler(Protocol[M_contra]):
    """The user of a link: provides its Hello and handles its messages and its end.

    Its methods run in whichever thread reads; they must not block or raise. `tick_s`: seconds
    between two calls of `tick` by the background thread, or up to `link_thread.SLEEP_MS` while
    another thread waits; None: no calls.
    """

    tick_s: float | None

    def hello(
        self, epoch: int
    ) -> messages.DriverHello | messages.SlotHello | messages.AttemptHello:
        """Return the Hello, the first frame of a new connection.

        `epoch`: the highest epoch of a dispatcher that this link has seen.
        """
        ...

    def attached(self, message: messages.Attached) -> Iterable[frames.Sent]:
        """Return the messages to send first on a new connection, in order."""
        ...

    def received(self, message: M_contra) -> None:
        """Handle a message other than Attached and Refused. After a Ctrl-C a message may come
        twice.
        """
        ...

    def gather(self) -> None:
        """Send the messages that were held back to be sent together, since the link is about to
        write.
        """
        ...

    def tick(self) -> None:
        """Do periodic work; called at intervals of `tick_s` seconds."""
        ...

    def link_ended(self, error: Exception) -> None:
        """Handle the final end of the link, after which nothing is sent or received."""
        ...


class Link(Generic[M]):
    """A link to the dispatcher that many threads use; see the module.

    `connect`: a function that returns a connected socket. If it raises an OSError, the link tries
    again; if it raises a KilnError, the link ends. `failure`: the error that ended the link, or
    None. `patience_s`: seconds without a dispatcher after which the link ends.
    """

    def __init__(
        self,
        handler: Handler[M],
        *,
        connect: Callable[[], socket.socket],
        decode: Callable[[bytes], M],
        clock: clocks.Clock,
        entropy: ids.Entropy,
        patience_s: float = 60.0,
    ) -> None:
        self.failure: Exception | None = None
        self.clock = clock
        self.handler = handler
        self.turns = read_turns.Turns()
        self.outbox = socket_write_queue.Outbox()
        self.socket: socket.socket | None = None
        self._connect = connect
        self._decode = decode
        self._epoch = 0
        self._cutter = frames.Cutter()
        # An eventfd takes any number of wake-ups without blocking, also from a signal handler.
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = self._polling()
        # Not at exit: the background thread is a daemon, and may still poll the descriptor then.
        weakref.finalize(self, os.close, self._wake_fd).atexit = False
        self._thread = link_thread.LinkThread(self, entropy, patience_s=patience_s)
        _links.add(self)

    def open(self, *, timeout_s: float) -> None:
        """Make the first connection, and wait until the dispatcher accepts it.

        Raises `LinkRefused`, `LinkClosed`, or the KilnError that `connect` raises.
        """
        try:
            self._thread.connect(patience_s=timeout_s)
        except BaseException as error:
            self.end(error if isinstance(error, Exception) else errors.LinkClosed("interrupted"))
            raise
        self._thread.start()

    def send(self, message: frames.Sent) -> None:
        """Encode a message now and write it soon, from any thread; drop it while there is no
        connection.

        Raises `FrameTooLarge`.
        """
        if self.outbox.put(frames.encode(message)) >= WRITE_BYTES:
            self.outbox.write()
            # The reader polls for POLLOUT only if the outbox was stuck before its poll began.
            if self.outbox.stuck:
                self.interrupt_poll()
        else:
            self._thread.schedule_write()

    def schedule_gather(self) -> None:
        """Have the background thread call `Handler.gather` within a millisecond or two."""
        if not self._thread.has_writes:
            self._thread.schedule_write()

    def flush(self) -> None:
        """Call `Handler.gather`, and write as many bytes as the socket takes now.

        Does nothing once the link has ended.
        """
        if self.failure is not None:
            return
        # Before `gather`: a frame that another thread queues from here on schedules a write of its
        # own.
        self._thread.cancel_write()
        try:
            self.handler.gather()
            self.outbox.write()
        except BaseException:
            # Interrupted half-way, say by Ctrl-C: the background thread writes the rest.
            self._thread.schedule_write()
            raise
        if self.outbox.stuck:
            self.interrupt_poll()

    def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `done()` is true; return False after `timeout_s`.

        `done` is called often, also by other threads: it must be quick and must not raise. Raises
        `failure` when the link has ended.
        """
        if done():
            return True
        until = None if timeout_s is None else self.clock.monotonic() + timeout_s
        turn = read_turns.Turn(done)
        # This thread may wait for the response to a frame that was not written yet.
        self.flush()
        while not done():
            left_s = None if until is None else until - self.clock.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            if self.failure is not None:
                raise self.failure
            try:
                if self.turns.enter(turn, left_s):
                    self._lead(done, until)
                self.turns.leave(turn)
                self._thread.reader_left()
            except BaseException:
                # Not in a `finally`: the interrupt may have come between any two of the calls
                # above.
                self._interrupted(turn)
                raise
        return True

    def wake(self) -> None:
        """Make all waiting threads call their `done` again."""
        self.turns.look()
        # The leader waits in poll(2), not at a gate of its turn, so it must be woken separately.
        self.interrupt_poll()

    def interrupt_poll(self) -> None:
        """Interrupt the poll of the thread that reads, so that it checks its condition and the link
        again.
        """
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake_fd, 1)
        self._thread.wake()

    def reconnect_now(self) -> None:
        """Connect now, if there is no connection, rather than after the back-off."""
        self._thread.wake()

    def close(self) -> None:
        """Write all queued frames, then end the connection and the background thread.
        Idempotent.
        """
        if self.failure is None:
            with contextlib.suppress(errors.ChannelError):
                self._flush_all()
            self.end(errors.LinkClosed("the link was closed"), tell=False)
        if not isinstance(self.failure, errors.LinkForked):
            self._thread.join()

    # for the link thread

    def attach(self, *, timeout_s: float) -> None:
        """Make a new connection, send a Hello, and wait for Attached, the response to it.

        Raises OSError, ChannelError or KilnError.
        """
        connection = self._connect()
        try:
            connection.settimeout(timeout_s)
            # The rest of a frame of the old connection must not become the beginning of this one.
            self._cutter = frames.Cutter()
            connection.sendall(frames.encode(self.handler.hello(self._epoch)))
            bodies: list[bytes] = []
            while not bodies:
                data = connection.recv(READ_BYTES)
                if not data:
                    raise errors.LinkClosed("the dispatcher closed the link at once")
                bodies = self._cutter.feed(data)
            self._attach(connection, bodies)
        except BaseException:
            self._forget(connection)
            raise

    def pump(self) -> None:
        """Read the available bytes and pass their messages to the handler.

        Only for the leading thread.
        """
        connection = self.socket
        if connection is None:
            return
        try:
            data = connection.recv(READ_BYTES)
            if not data:
                raise errors.LinkClosed("the dispatcher closed the link")
            self._handle(self._cutter.feed(data))
        except (BlockingIOError, InterruptedError):
            # No data: poll(2) may report a socket as readable although it has none.
            pass
        except (OSError, errors.ChannelError) as error:
            self.drop(error)
        except BaseException:
            # It is unknown how much of the data was handled: only a new connection brings all of it
            # again.
            self.drop(errors.LinkClosed("interrupted while reading"))
            raise
        self.turns.look()

    def drop(self, error: Exception) -> None:
        """Close the connection after `error`; the background thread then reconnects.

        Only for the leading thread.
        """
        connection, self.socket = self.socket, None
        if connection is None:
            return
        # Before the close: a thread that took the lead now could poll a reused descriptor number.
        self.turns.shut()
        self._forget(connection)
        # Last: the background thread waits until this thread no longer leads, and then reads
        # `error`.
        self._thread.dropped(error)

    def end(self, error: Exception, *, tell: bool = True) -> None:
        """End the link for good because of `error`, and wake all waiting threads."""
        if self.failure is not None:
            return
        # First: a thread that is about to wait then raises it instead.
        self.failure = error
        try:
            if tell:
                self.handler.link_ended(error)
        finally:
            connection = self.socket
            if connection is not None:
                with contextlib.suppress(OSError):
                    # Shut down, not closed: another thread may be polling the descriptor.
                    connection.shutdown(socket.SHUT_RDWR)
            self.turns.finish()
            self.interrupt_poll()
            self.dispose()

    def dispose(self) -> None:
        """Close the connection of an ended link, unless a thread leads: then the leader closes
        it.
        """
        turn = read_turns.Turn(lambda: True)
        try:
            if self.failure is not None and self.turns.take(turn):
                self.drop(self.failure)
        finally:
            self.turns.leave(turn)

    # private

    def _interrupted(self, turn: read_turns.Turn) -> None:
        """Repair the state of the link after an exception ended a wait at any point.

        Repeats every step of the end of a wait, since any of them may not have run.
        """
        self.turns.leave(turn)
        self.turns.look()
        self._thread.wake()

    def _attach(self, connection: socket.socket, bodies: list[bytes]) -> None:
        message = self._decode(bodies[0])
        if isinstance(message, messages.Refused):
            raise errors.LinkRefused(message.reason, message.message, retry=message.retry)
        if not isinstance(message, messages.Attached):
            raise errors.MalformedFrame(f"a {type(message).__name__} instead of Attached")
        # The dispatcher has lost the journal to a newer one, and has not noticed yet.
        if message.epoch < self._epoch:
            raise errors.LinkClosed("this dispatcher is older than the last one")
        self._epoch = message.epoch
        # The rest of a frame that the last connection did not take must not be written to this one.
        self.outbox.shut()
        # From here on frames are kept, to follow the first ones, rather than dropped.
        self.outbox.hold()
        first = [frames.encode(each) for each in self.handler.attached(message)]
        connection.setblocking(False)
        self.outbox.open(connection, first)
        # Messages that came in the same read as Attached.
        self._handle(bodies[1:])
        self.flush()
        self._poll = self._polling(connection)
        # In this order: a thread leads as soon as turns are open, and must find the socket.
        self.socket = connection
        self.turns.open()

    def _forget(self, connection: socket.socket) -> None:
        self.socket = None
        self.outbox.shut()
        connection.close()

    def _polling(self, connection: socket.socket | None = None) -> select.poll:
        """Return the poll object of the leader, a new one for each connection.

        Descriptor numbers are reused, so the poll object of an earlier connection cannot be used
        again.
        """
        made = select.poll()
        made.register(self._wake_fd, select.POLLIN)
        if connection is not None:
            made.register(connection, select.POLLIN)
        return made

    def _handle(self, bodies: list[bytes]) -> None:
        received, decode = self.handler.received, self._decode
        for body in bodies:
            message = decode(body)
            if isinstance(message, messages.Refused):
                raise errors.LinkRefused(message.reason, message.message, retry=message.retry)
            received(message)

    def _lead(self, done: Callable[[], bool], until: float | None) -> None:
        """Read the socket for all threads until `done()`, the timeout, or the end of the
        connection.
        """
        timeout_ms = None
        while not done():
            connection = self.socket
            if connection is None:
                return
            # `end` leaves it to the leader to close the socket.
            if self.failure is not None:
                self.drop(self.failure)
                return
            if until is not None:
                timeout_ms = (until - self.clock.monotonic()) * 1000
                if timeout_ms <= 0:
                    return
            polling = self._poll
            watching_writes = self.outbox.stuck
            if watching_writes:
                # Only while the outbox is stuck: an idle socket is always writable, so poll would
                # not wait.
                polling.modify(connection, select.POLLIN | select.POLLOUT)
            self._thread.reader_polls()
            for fd, event in polling.poll(timeout_ms):
                if fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
                    continue
                if event & select.POLLOUT:
                    self.outbox.write()
                # This includes POLLHUP and POLLERR: the read then reports the error.
                if event & ~select.POLLOUT:
                    self.pump()
            # Handling a frame may have dropped the connection, and the descriptor's number may be
            # reused.
            if watching_writes and self.socket is connection:
                polling.modify(connection, select.POLLIN)

    def _flush_all(self) -> None:
        self.flush()
        if self.socket is not None:
            self.wait(lambda: not self.outbox.stuck, CLOSING_S)

    def _forked(self) -> None:
        """Discard the parent's state in the child of a fork, without taking a lock."""
        self.failure = errors.LinkForked()
        # New objects: a thread that does not exist in this process may hold the locks of the old
        # ones.
        self.turns, self.outbox = read_turns.Turns(), socket_write_queue.Outbox()
        self.turns.finish()
        self._thread.forked()
        if self.socket is not None:
            # This closes the child's copy only; a shutdown would end the parent's connection.
            self.socket.close()
            self.socket = None


def unix(path: str) -> socket.socket:
    """Return a new connection to the Unix socket `path`. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


_links: "weakref.WeakSet[Link[Any]]" = weakref.WeakSet()


def _after_fork() -> None:
    for link in list(_links):
        link._forked()


os.register_at_fork(after_in_child=_after_fork)
