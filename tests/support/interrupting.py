"""Ctrl-C at a chosen place: SIGINT to the main thread once it is inside of a given function.

For tests of what blocks. A timer would hit the test itself on a busy machine, and end all of them.
"""

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from support import waiting


def once_in(function: Callable[..., Any]) -> threading.Thread:
    """Call it in the main thread, right before that calls `function` and stays there."""
    main = threading.main_thread().ident
    assert main is not None

    def inside() -> bool:
        frame = sys._current_frames().get(main)
        while frame is not None and frame.f_code is not function.__code__:
            frame = frame.f_back
        return frame is not None

    def interrupt() -> None:
        waiting.wait_until(inside, what=f"the main thread is in {function}", every_s=0.002)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt, name="ctrl-c", daemon=True)
    thread.start()
    return thread
