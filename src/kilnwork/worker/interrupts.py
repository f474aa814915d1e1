"""Interrupts of the main thread of a slot: Cancelled is raised in user code, and nowhere else.

Used by `slot_session` and `pod_call`. The link's thread requests an interrupt by a signal. The
signal handler raises only if user code is on top of the stack at that moment, so that no function
of kilnwork is left half-way. Otherwise the next tick tries again; while the slot waits for results,
it polls `due` instead.
"""

import importlib
import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType

from kilnwork.sdk import errors
from kilnwork.worker import slot_call_table

SIGNAL = signal.SIGRTMIN + 5
"""The signal of an interrupt: one that user code hardly uses. Its default action would end the
process.
"""

_OURS = "kilnwork."

_handler: Callable[[int], object] = importlib.import_module("_signal").getsignal
"""The function that `signal.getsignal` calls.

`signal.getsignal` also looks up a member of an enum, which takes several microseconds, and the
handlers are checked after nearly every call.
"""


class Interrupts:
    """Interrupts of user code by a signal; see the module. Create it in the main thread.

    `user`: True while user code runs or is about to return. `doors`: the functions that call user
    code; every frame above one of them belongs to user code.
    """

    __slots__ = ("_doors", "_main", "_stack", "_stops", "user")

    def __init__(
        self, held: slot_call_table.SlotCalls, *, doors: tuple[Callable[..., object], ...]
    ) -> None:
        self.user = False
        self._stack = held.stack
        self._stops = held.stops
        self._doors: frozenset[CodeType] = frozenset(door.__code__ for door in doors)
        self._main = threading.get_ident()
        # Python runs handlers in the main thread, between two bytecodes.
        signal.signal(SIGNAL, self._raise)

    def repair(self) -> None:
        """Restore the signal handlers that a call may have replaced.

        If SIGCHLD stayed ignored, every command of a later call would seem to succeed.
        """
        # Not `is not`: every access makes a new bound method.
        if _handler(SIGNAL) != self._raise:
            signal.signal(SIGNAL, self._raise)
        # When SIGCHLD is ignored, the kernel reaps children, and subprocess takes ECHILD for exit
        # code 0.
        if _handler(signal.SIGCHLD) == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def due(self) -> bool:
        """Return whether Cancelled is to be raised in the call on top of the stack: this call must
        stop, or a call that waits for it must, and Cancelled was not raised in it yet.
        """
        return bool(self._stops) and bool(self._stack) and not self._stack[-1].raised

    def ask(self) -> None:
        """Request an interrupt of the main thread.

        May be called from any thread, any number of times.
        """
        # This also interrupts a blocking system call: Python runs the handler before it repeats the
        # call.
        signal.pthread_kill(self._main, SIGNAL)

    def cancelled(self) -> errors.Cancelled:
        """Return the exception to raise in user code now.

        It is raised only once for each attempt.
        """
        top = self._stack[-1]
        top.raised = True
        if top.stop:
            return errors.Cancelled("the task was asked to stop", reason=top.stop)
        return errors.Cancelled("the task that waits for this one here was asked to stop")

    def _raise(self, _: int, frame: FrameType | None) -> None:
        if self.user and self.due() and not self._in_ours(frame):
            raise self.cancelled()

    def _in_ours(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code not in self._doors:
            # User code has called kilnwork, whose functions must not be left half-way.
            if str(frame.f_globals.get("__name__")).startswith(_OURS):
                return True
            frame = frame.f_back
        return False
