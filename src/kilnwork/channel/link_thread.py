"""The background thread of a link: reads when no other thread does, and writes queued frames.

Used by `channel.blocking_link`. The thread also reconnects with back-off, and calls `Handler.tick`.
It must not compete for the socket with threads that read for themselves. While such threads come
and go it *naps*: it only checks from time to time whether frames wait to be written. While one of
them keeps reading, it *sleeps* until that thread stops. Only when no thread has waited for the
length of a nap does it *watch* the socket.
"""

import logging
import os
import select
import threading
import weakref
from typing import Any, Protocol

from kilnwork.channel import errors, read_turns
from kilnwork.kit import backoff, clock, ids
from kilnwork.kit import errors as kit_errors

log = logging.getLogger(__name__)

RECONNECT = backoff.Backoff(base_s=0.02, max_s=1.0, jitter=0.2)

SILENCE_S = 5.0
"""Seconds without a dispatcher after which a warning says what callers wait for; a restart takes 1
to 2 s.
"""

NAP_MS = 2
"""Milliseconds of a nap. While other threads read, this is also the maximum time for which a queued
frame waits to be written.
"""

LINGER_MS = 1
"""Milliseconds for which a queued frame waits for more frames while no other thread reads."""

HANDSHAKE_S = 5.0
"""Seconds after which a connection on which the dispatcher says nothing is closed and made
again.
"""

NAPS = 10
"""Number of naps after which the thread sleeps, if the same thread has led during all of them. It
sleeps until that thread stops leading.
"""

SLEEP_MS = 30_000
"""Maximum milliseconds of a sleep, so that ticks are at least this frequent."""

DROPPING_NAPS = 1000
"""Number of naps after which the thread reconnects even if the thread that dropped the connection
still leads: a signal handler may hold that thread up.
"""


WAITING = (
    "no dispatcher for %.0f s (%s): calls and results wait for it, and fail with DispatcherLost "
    "if it is not back %g s after the link was lost"
)


class LinkPort(Protocol):
    """The part of `blocking_link.Link` that the background thread uses; `Link` documents the
    methods.
    """

    failure: Exception | None
    clock: clock.Clock
    turns: read_turns.Turns
    handler: Any
    outbox: Any
    socket: Any

    def attach(self, *, timeout_s: float) -> None: ...
    def pump(self) -> None: ...
    def flush(self) -> None: ...
    def end(self, error: Exception) -> None: ...
    def dispose(self) -> None: ...


class LinkThread:
    """The background thread of one link; see the module.

    `has_writes`: frames wait to be written. The private fields record what the thread does now, so
    that other threads know whether they must wake it. `_awake`: it will check everything within a
    moment. `_watching`: it reads the socket. `_polls_beside`: how many polls of other threads have
    begun since it began to watch. `_asleep`: it waits until the leader stops leading. `_begun`:
    `turns.begun` when it last checked. `_naps`: how many naps in a row it has taken while the same
    thread led.
    """

    def __init__(self, link: LinkPort, entropy: ids.Entropy, *, patience_s: float) -> None:
        self._link = link
        self._entropy = entropy
        self._patience_s = patience_s
        self._next_tick = 0.0
        self._thread: threading.Thread | None = None
        self.has_writes = False
        self._awake = False
        self._asleep = False
        self._watching = False
        self._polls_beside = 0
        self._begun = 0
        self._naps = 0
        self._lost: Exception | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._napping = select.poll()
        self._napping.register(self._wake_fd, select.POLLIN)
        # Not at exit: the thread is a daemon, and may still poll the descriptor then.
        weakref.finalize(self, os.close, self._wake_fd).atexit = False

    # from any thread

    def start(self) -> None:
        # A daemon: a program that does not close its link must be able to exit.
        self._thread = threading.Thread(target=self._run, name="kiln link", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait up to 5 s until the background thread has ended; return at once if called in that
        thread.
        """
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def schedule_write(self) -> None:
        self.has_writes = True
        # An awake thread checks `has_writes` again before it waits: no system call is needed.
        if not self._awake:
            self._awake = True
            try:
                self.wake()
            except BaseException:
                # Interrupted by Ctrl-C before the wake-up: the next call must try again.
                self._awake = False
                raise

    def cancel_write(self) -> None:
        self.has_writes = False

    def reader_left(self) -> None:
        if self._asleep:
            self._asleep = False
            self.wake()

    def reader_polls(self) -> None:
        """Record that another thread reads the socket for itself.

        At that thread's second poll the background thread stops watching the socket, so that not
        every frame wakes two threads. For a single response it keeps watching.
        """
        if self._watching:
            self._polls_beside += 1
            if self._polls_beside == 2:
                self.wake()

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def dropped(self, error: Exception) -> None:
        self._lost = error
        self.wake()

    def forked(self) -> None:
        """Forget the background thread in the child of a fork, where it does not exist."""
        self._thread = None

    def connect(self, *, patience_s: float, failures: int = 0) -> None:
        """Connect until the dispatcher accepts the link, with back-off.

        Raises an error after which further tries are useless; after `patience_s`, `LinkClosed` or
        `LinkRefused`, which says why the last try failed; and `failure` once the link has ended.
        """
        monotonic = self._link.clock.monotonic
        began = monotonic()
        until = began + patience_s
        warned = False
        while self._link.failure is None:
            if failures:
                self._nap(RECONNECT.delay_s(failures, entropy=self._entropy) * 1000)
            failures += 1
            left_s = until - monotonic()
            # At least 0.1 s: a timeout of 0 would make the socket non-blocking.
            try:
                self._link.attach(timeout_s=min(HANDSHAKE_S, max(left_s, 0.1)))
                if warned:
                    log.warning("the dispatcher is back after %.0f s", monotonic() - began)
                return
            except errors.LinkRefused as error:
                if not error.retry or left_s <= 0:
                    raise
                why = str(error)
            except (OSError, errors.ChannelError) as error:
                if _is_final(error):
                    raise
                why = f"{error}" or type(error).__name__
                if left_s <= 0:
                    raise errors.LinkClosed(
                        f"no dispatcher for {patience_s:g} s; the last try: {why}"
                    ) from error
            if not warned and monotonic() - began >= SILENCE_S:
                warned = True
                log.warning(WAITING, monotonic() - began, why, patience_s)
        raise self._link.failure

    # the thread

    def _run(self) -> None:
        link = self._link
        try:
            while link.failure is None:
                if link.socket is None:
                    self._connect_again()
                elif link.turns.led or link.turns.begun != self._begun:
                    self._yield_to_readers()
                else:
                    self._watch()
                self._tick()
        except kit_errors.KilnError as error:
            link.end(error)
        except BaseException as error:
            # Without this thread no connection would be made and waits would never end, so the link
            # ends.
            log.exception("the thread of a link failed")
            failed = errors.LinkClosed(f"the thread of the link failed: {error!r}")
            failed.__cause__ = error
            link.end(failed)
        finally:
            link.dispose()

    def _connect_again(self) -> None:
        # Without a connection frames are dropped, so no sender needs to wake this thread.
        self._awake = True
        # The thread that dropped the connection sets `_lost` last, and leads until then.
        for _ in range(DROPPING_NAPS):
            if not self._link.turns.led:
                break
            self._nap(NAP_MS)
        lost = self._lost
        if isinstance(lost, errors.LinkRefused) and not lost.retry:
            raise lost
        self._link.turns.shut()
        self.connect(patience_s=self._patience_s, failures=1)

    def _yield_to_readers(self) -> None:
        """Nap or sleep while other threads read the socket, or did so a moment ago."""
        link = self._link
        begun, led = link.turns.begun, link.turns.led
        same = led and begun == self._begun
        self._naps = self._naps + 1 if same else 0
        self._begun = begun
        if self._naps < NAPS:
            self._awake = True
            self._nap(NAP_MS)
        else:
            self._awake = False
            # Set before the checks: a leader that stops in between then wakes this thread.
            self._asleep = True
            if link.turns.led and link.turns.begun == begun and not self.has_writes:
                self._nap(SLEEP_MS)
            self._asleep = False
            self._awake = True
        if self.has_writes:
            link.flush()

    def _watch(self) -> None:
        """Read the socket while no other thread does."""
        link = self._link
        connection = link.socket
        number = -1 if connection is None else connection.fileno()
        if number < 0:  # the thread that read the socket has just closed it
            return
        watching = select.poll()
        watching.register(self._wake_fd, select.POLLIN)
        stuck = link.outbox.stuck
        watching.register(number, select.POLLIN | (select.POLLOUT if stuck else 0))
        due = self.has_writes
        if not due:
            # This order matters: a sender that sees `_awake` sets `has_writes` only.
            self._awake = False
            due = self._awake = self.has_writes
        readable = woken = False
        self._polls_beside, self._watching = 0, True
        # The wait gives other threads time to add frames to the same write.
        events = watching.poll(LINGER_MS if due else self._tick_ms())
        self._watching = False
        for fd, event in events:
            if fd == self._wake_fd:
                os.eventfd_read(self._wake_fd)
                self._awake = woken = True
            elif event & select.POLLOUT:
                link.outbox.write()
            readable = readable or (fd != self._wake_fd and bool(event & ~select.POLLOUT))
        if readable:
            self._pump()
        # If the thread was woken, the frame is new: it may wait as long as any other.
        if due and self.has_writes and not woken:
            link.flush()

    def _pump(self) -> None:
        turn = read_turns.Turn(lambda: True)
        try:
            # Another thread may have taken the lead since the poll, and read the data.
            if self._link.turns.lead_if_free(turn):
                self._link.pump()
        finally:
            self._link.turns.leave(turn)

    def _nap(self, milliseconds: float | None) -> None:
        if self._napping.poll(milliseconds):
            os.eventfd_read(self._wake_fd)

    def _tick_ms(self) -> float | None:
        if self._link.handler.tick_s is None:
            return None
        return max(0.0, (self._next_tick - self._link.clock.monotonic()) * 1000)

    def _tick(self) -> None:
        handler = self._link.handler
        if handler.tick_s is None:
            return
        now = self._link.clock.monotonic()
        if now >= self._next_tick:
            handler.tick()
            self._next_tick = now + handler.tick_s  # the call may have changed `tick_s`


def _is_final(error: Exception) -> bool:
    """Return whether `connect` raised a KilnError, which is final even if it is also an OSError."""
    return isinstance(error, kit_errors.KilnError) and not isinstance(error, errors.ChannelError)
