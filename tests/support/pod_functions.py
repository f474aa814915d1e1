"""Functions that tests call in Pods of their own."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kilnwork as kiln


def add(a: int, b: int) -> int:
    return a + b


def fail(text: str) -> None:
    raise ValueError(text)


def fill(size: int) -> bytes:
    return b"x" * size


def fill_on_second_try(size: int, blobs: str) -> bytes:
    """Return a large value, which the first attempt cannot store: a file is in the way."""
    path = Path(blobs)
    if path.is_file():
        path.unlink()
    else:
        path.touch()
    return fill(size)


def leave(code: int) -> None:
    os._exit(code)


def stay(seen: str, message: str = "cancelled") -> str:
    """Report the start, then how it is asked to stop."""
    path = Path(seen)
    path.write_text("runs")
    try:
        time.sleep(60)
    except kiln.Cancelled:
        path.write_text(message)
        raise
    return "not stopped"


def wait_for(seen: str, go: str, value: Any = "gone on") -> Any:
    """Report the start, and return once that file exists."""
    Path(seen).write_text("runs")
    while not Path(go).exists():
        time.sleep(0.01)
    return value


def stay_waiting(seen: str) -> Any:
    """Report the start, then wait for a task that does not end."""
    waited = kiln.task(stay).submit(seen)
    try:
        return waited.result()
    except kiln.Cancelled:
        Path(seen).with_suffix(".cancelled").touch()
        raise


def count(to: int) -> Iterator[int]:
    yield from range(to)


def report(path: str) -> list[Any]:
    """Return the environment that the call finds."""
    here = kiln.context()
    here.progress(0.5, "half")
    print("printed")
    child = subprocess.run(
        [sys.executable, "-c", "import os; print('KILN_TOKEN_FILE' in os.environ)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [here.attempt, here.task_id, child.stdout.strip(), os.environ.get("MINE"), path]


def leave_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(60,)).start()
    return "done"


def fork() -> str:
    """Return twice: here, and in a forked process."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return "parent"
    return "child"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
