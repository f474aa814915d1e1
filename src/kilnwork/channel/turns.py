"""Who reads a socket that many threads wait for: leader and followers.

Used by `channel.client`. The first thread that waits leads: it reads for all. The others sleep on a
lock of their own each, until what they wait for is there or the leader leaves and the lead is
theirs. Nobody polls, and nobody is woken for nothing. No sockets here.
"""

import threading
from collections.abc import Callable


class Turn:
    """One wait of one thread. `leads`: it reads for all, and must leave."""

    __slots__ = ("done", "gate", "leads")

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done
        self.leads = False
        self.gate: threading.Lock | None = None


class Turns:
    """See the module. `begun` counts the turns of threads that wait: it moves while they come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followers: dict[Turn, None] = {}
        self._open = False
        self._over = False
        self.led = False
        self.begun = 0

    def enter(self, turn: Turn, timeout_s: float | None) -> bool:
        """True when this thread leads from now on; else look at what you wait for again.

        Sleeps while another thread leads or there is nothing to read from. Whatever happens,
        `leave` must be called afterwards.
        """
        with self._lock:
            if self._open and not self.led:
                self.led = turn.leads = True
                self.begun += 1
                return True
            if self._over:
                return False
            turn.gate = gate = threading.Lock()
            gate.acquire()
            self._followers[turn] = None
        if not turn.done():  # it may have come before we were in the list
            gate.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        return turn.leads

    def stand_in(self, turn: Turn) -> bool:
        """Lead if nobody does, without a wait: for the thread that reads when nobody waits."""
        with self._lock:
            if not self._open or self.led:
                return False
            self.led = turn.leads = True
            return True

    def take(self, turn: Turn) -> bool:
        """Lead though there is nothing to read from, to tidy up; False if another thread leads."""
        with self._lock:
            if self.led:
                return False
            self.led = turn.leads = True
            return True

    def leave(self, turn: Turn) -> None:
        """The wait is over, however it ended; the lead goes to the first that sleeps."""
        with self._lock:
            self._followers.pop(turn, None)
            if turn.leads:
                turn.leads = self.led = False
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
        """There is something to read from."""
        with self._lock:
            self._open = True
            if not self.led:
                self._pass_on()

    def shut(self) -> None:
        """There is nothing to read from; who leads must leave by itself."""
        with self._lock:
            self._open = False

    def finish(self) -> None:
        """Nobody will lead any more: all wake."""
        with self._lock:
            self._open, self._over = False, True
            for turn in list(self._followers):
                self._wake(turn)

    def _pass_on(self) -> None:
        if self._open and self._followers:
            turn = next(iter(self._followers))
            self.led = turn.leads = True
            self.begun += 1
            self._wake(turn)

    def _wake(self, turn: Turn) -> None:
        if turn in self._followers:
            del self._followers[turn]
            if turn.gate is not None:
                turn.gate.release()
