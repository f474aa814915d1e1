"""Who reads a socket that many threads wait for: leader and followers.

Used by `channel.client`. The first thread that waits leads: it reads for all. The others sleep on a
lock of their own each, until what they wait for is there or the leader leaves and the lead is
theirs. No thread polls, and none is woken without need. No sockets here.

Ctrl-C may interrupt the main thread between any two calls. Hence `_leader` alone says who leads, is
written last, and `leave` may be called again when it was interrupted.
"""

import threading
from collections.abc import Callable


class Turn:
    """One wait of one thread. `gate`: what it sleeps on while it follows. `below`: the turn that
    led in this thread before, which a signal handler has interrupted."""

    __slots__ = ("below", "done", "gate", "thread")

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done
        self.thread = threading.get_ident()
        self.gate: threading.Lock | None = None
        self.below: Turn | None = None


class Turns:
    """See the module. `begun` counts the turns of threads that wait: it moves while they come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followers: dict[Turn, None] = {}
        self._leader: Turn | None = None
        self._open = False
        self._over = False
        self.begun = 0

    @property
    def led(self) -> bool:
        """True while a thread reads."""
        return self._leader is not None

    def enter(self, turn: Turn, timeout_s: float | None) -> bool:
        """True when this thread leads from now on; else look at what you wait for again.

        Sleeps while another thread leads or there is nothing to read from. Whatever happens,
        `leave` must be called afterwards. A signal handler that waits while the thread that it
        interrupted leads, leads in its place.
        """
        with self._lock:
            leader = self._leader
            if self._open and (leader is None or leader.thread == turn.thread):
                turn.below = leader
                self.begun += 1
                self._leader = turn
                return True
            if self._over:
                return False
            turn.gate = gate = threading.Lock()
            gate.acquire()
            self._followers[turn] = None
        if not turn.done():  # it may have come before we were in the list
            gate.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        with self._lock:
            return self._leader is turn

    def lead_if_free(self, turn: Turn) -> bool:
        """Lead if no thread does, without waiting: for the thread that reads when no other
        waits."""
        with self._lock:
            if not self._open or self._leader is not None:
                return False
            self._leader = turn
            return True

    def take(self, turn: Turn) -> bool:
        """Lead in order to clean up, with or without a socket; False if another thread leads."""
        with self._lock:
            if self._leader is not None:
                return False
            self._leader = turn
            return True

    def leave(self, turn: Turn) -> None:
        """The wait is over, however it ended; the lead goes to the first that sleeps."""
        with self._lock:
            self._followers.pop(turn, None)
            if self._leader is turn:
                if turn.below is not None:
                    self._leader = turn.below
                else:
                    self._pass_on()

    def look(self) -> None:
        """Wake those who have what they wait for."""
        if not self._followers:
            return
        with self._lock:
            followers = list(self._followers)
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
        """There is nothing to read from; who leads must leave by itself."""
        with self._lock:
            self._open = False

    def finish(self) -> None:
        """Wake all threads: none will lead any more."""
        with self._lock:
            self._open, self._over = False, True
            for turn in list(self._followers):
                self._wake(turn)

    def _pass_on(self) -> None:
        """Wake the next before it leads: it sees whether it does once this lock is released."""
        following = next(iter(self._followers), None) if self._open else None
        if following is not None:
            self.begun += 1
            self._wake(following)
        self._leader = following

    def _wake(self, turn: Turn) -> None:
        gate = turn.gate
        if turn in self._followers and gate is not None and gate.locked():
            gate.release()
        self._followers.pop(turn, None)
