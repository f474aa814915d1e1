"""Sends SIGINT to the main thread while it is inside a given function, as Ctrl-C would.

For tests of blocking calls. A timer would hit the test itself on a busy machine. Python does not
notice a signal that arrives right before a system call blocks; then it is sent again, as a user
presses Ctrl-C again, but never after that call of the function has ended.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from support import waiting


def interrupt_inside(function: Callable[..., Any]) -> threading.Thread:
    """Arm the interrupt; call it in the main thread right before the call that blocks in
    `function`.
    """
    main = threading.main_thread().ident
    assert main is not None

    def inside() -> FrameType | None:
        frame = sys._current_frames().get(main)
        while frame is not None and frame.f_code is not function.__code__:
            frame = frame.f_back
        return frame

    def interrupt() -> None:
        call = waiting.wait_until(inside, what=f"the main thread is in {function}", every_s=0.002)
        unheard = True
        while unheard:
            signal.pthread_kill(main, signal.SIGINT)
            with contextlib.suppress(AssertionError):
                waiting.wait_until(
                    lambda: inside() is not call, what="it is heard", timeout_s=5, every_s=0.002
                )
                unheard = False

    thread = threading.Thread(target=interrupt, name="ctrl-c", daemon=True)
    thread.start()
    return thread
