"""Deterministic interleaving of two threads by lines, for tests of races on the real code.

A schedule says after how many lines of one module the other thread runs; when one has finished, the
other runs to its end.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any


class Interleaving:
    """Runs two callables, line by line of `module`, as `schedule` says.

    `schedule`: number of lines that the first runs, then the second, then the first, and so on;
    after its last number a thread runs to its end.
    """

    def __init__(self, module: ModuleType, schedule: Sequence[int]) -> None:
        self._file = module.__file__
        self._schedule = list(schedule)
        self._left = self._next()
        self._turn = 0
        self._over = [False, False]
        self._changed = threading.Condition()
        self.lines = [0, 0]

    def run(self, first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
        """Return the results of the two callables, or the exceptions that they raised."""
        results: list[Any] = [None, None]

        def work(me: int, call: Callable[[], Any]) -> None:
            sys.settrace(lambda frame, event, arg: self._called(me, frame))
            try:
                results[me] = call()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                results[me] = error
            finally:
                sys.settrace(None)
                self._end(me)

        threads = [
            threading.Thread(target=work, args=(i, c)) for i, c in enumerate((first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results[0], results[1]

    def _called(self, me: int, frame: FrameType) -> Callable[[FrameType, str, Any], Any] | None:
        if frame.f_code.co_filename != self._file:
            return None

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            if event == "line":
                self._step(me)
            return trace

        return trace

    def _step(self, me: int) -> None:
        if self._turn == me and self._left != 0:  # only the thread whose turn it is changes either
            self._left -= 1
            self.lines[me] += 1
            return
        with self._changed:
            if self._turn == me and self._left == 0 and not self._over[1 - me]:
                self._hand_over(me)
            self._changed.wait_for(lambda: self._turn == me)
            self._left -= 1
            self.lines[me] += 1

    def _end(self, me: int) -> None:
        with self._changed:
            self._over[me] = True
            if self._turn == me:
                self._hand_over(me)

    def _hand_over(self, me: int) -> None:
        self._turn, self._left = 1 - me, self._next()
        self._changed.notify_all()

    def _next(self) -> int:
        return self._schedule.pop(0) if self._schedule else -1
