"""Decides which of the threads that wait for a socket reads it: the leader; the others follow.

Used by `channel.blocking_link` and `channel.link_thread`. The first thread that waits leads: it
reads for all threads. Each of the others sleeps on a lock of its own, until the condition that it
waits for is true, or until the leader stops and this thread takes over. No thread polls, and no
thread is woken without need. No sockets here.

Ctrl-C may interrupt the main thread between any two calls. Hence `_leader` alone determines which
thread leads, and is written last, and `leave` may be called again after it was interrupted.
"""

import threading
from collections.abc import Callable


class Turn:
    """One wait of one thread.

    `gate`: the lock on which the thread sleeps while another leads. `below`: the turn that led in
    this thread when a signal handler interrupted it.
    """

    __slots__ = ("below", "done", "gate", "thread")

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done
        self.thread = threading.get_ident()
        self.gate: threading.Lock | None = None
        self.below: Turn | None = None


class Turns:
    """The waits of all threads of one link; see the module.

    `begun`: how often a waiting thread has taken the lead; if it rises, threads come and go.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followers: dict[Turn, None] = {}
        self._leader: Turn | None = None
        self._open = False
        self._over = False
        self.begun = 0

    @property
    def led(self) -> bool:
        """Return whether a thread leads, that is, reads the socket for all."""
        return self._leader is not None

    def enter(self, turn: Turn, timeout_s: float | None) -> bool:
        """Return True if this thread leads from now on; otherwise the caller must check its
        condition again.

        Sleeps while another thread leads or there is no connection. Whatever happens, call `leave`
        afterwards. If a signal handler waits while the thread that it interrupted leads, the
        handler's turn takes the lead in place of that thread's turn.
        """
        with self._lock:
            leader = self._leader
            if self._open and (leader is None or leader.thread == turn.thread):
                turn.below = leader
                self.begun += 1
                # Last: if interrupted before this line, the turn does not lead, and `leave` has
                # nothing to undo.
                self._leader = turn
                return True
            if self._over:
                return False
            # Created only now: most waits lead, and never sleep.
            turn.gate = gate = threading.Lock()
            gate.acquire()
            self._followers[turn] = None
        # The condition may have become true before this turn was among the followers.
        if not turn.done():
            # `acquire` raises OverflowError for more than TIMEOUT_MAX.
            gate.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        with self._lock:
            # Under the lock, since `_pass_on` wakes this thread before it writes `_leader`.
            return self._leader is turn

    def lead_if_free(self, turn: Turn) -> bool:
        """Take the lead without waiting, if no thread has it; return whether it was taken.

        For the background thread, which reads when no other thread waits.
        """
        with self._lock:
            if not self._open or self._leader is not None:
                return False
            self._leader = turn
            return True

    def take(self, turn: Turn) -> bool:
        """Take the lead in order to clean up, with or without a socket.

        Return False if another thread leads.
        """
        with self._lock:
            if self._leader is not None:
                return False
            self._leader = turn
            return True

    def leave(self, turn: Turn) -> None:
        """End a turn, also after an exception; the lead passes to the first thread that sleeps."""
        with self._lock:
            self._followers.pop(turn, None)
            if self._leader is turn:
                if turn.below is not None:
                    self._leader = turn.below
                else:
                    self._pass_on()

    def look(self) -> None:
        """Wake the threads whose condition has become true."""
        # Without the lock: this runs after every read, mostly while no thread follows.
        if not self._followers:
            return
        with self._lock:
            followers = list(self._followers)
        # Outside the lock: `done` is the callers' code, and may take locks of its own.
        ready = [turn for turn in followers if turn.done()]
        with self._lock:
            for turn in ready:
                self._wake(turn)

    def open(self) -> None:
        with self._lock:
            self._open = True
            if self._leader is None:
                self._pass_on()

    def shut(self) -> None:
        """Let no thread take the lead until `open`, because there is no connection.

        The leader must leave by itself.
        """
        with self._lock:
            self._open = False

    def finish(self) -> None:
        """Wake all waiting threads; no thread will lead any more."""
        with self._lock:
            self._open, self._over = False, True
            for turn in list(self._followers):
                self._wake(turn)

    def _pass_on(self) -> None:
        """Wake the next follower and make it the leader.

        If no thread follows, or there is no connection, no thread leads. Call it with the lock
        held: the woken thread waits for the lock before it checks whether it leads.
        """
        following = next(iter(self._followers), None) if self._open else None
        if following is not None:
            self.begun += 1
            self._wake(following)
        self._leader = following

    def _wake(self, turn: Turn) -> None:
        gate = turn.gate
        # Releasing a lock that is not locked raises; a turn may be woken twice.
        if turn in self._followers and gate is not None and gate.locked():
            gate.release()
        self._followers.pop(turn, None)
