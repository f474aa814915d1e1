"""Ctrl-C at a chosen place: SIGINT to the main thread once it is inside of a given function.

For tests of what blocks. A timer would hit the test itself on a busy machine, and end all of them.
Python does not hear of a signal that comes right before a system call blocks: then it is sent
again, as a user presses Ctrl-C again, but never once that call of the function is over.
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
    """Call it in the main thread, right before that calls `function` and stays there."""
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
