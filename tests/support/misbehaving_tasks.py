"""Task functions that behave badly, for the fault tests; slots import them by name."""

import contextlib
import os
import signal
import subprocess
import time

import kilnwork as kiln


@kiln.task
def double(number: int) -> int:
    """Return twice the number: a well-behaved task, to see that the slots still work."""
    return 2 * number


@kiln.task
def large(byte: int, size: int) -> bytes:
    return bytes([byte]) * size


@kiln.task
def length(data: bytes) -> int:
    """Return the length of data that is stored as a blob."""
    return len(data)


@kiln.task
def forks() -> int:
    """Leave a fork of this process running for ten minutes; return its pid."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


@kiln.task
def daemonises() -> int:
    """Leave a daemon: a new session, no parent, no mark in its environment."""
    script = (
        "import subprocess as s; print(s.Popen(['sleep', '600'], stdout=s.DEVNULL, env={}).pid)"
    )
    done = subprocess.run(
        ["python3", "-c", script],
        start_new_session=True,
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return int(done.stdout)


@kiln.task(kill_grace=0.5)
def clings(path: str) -> None:
    """Ignore SIGTERM and every exception; write its pid and that of a child that does the same."""
    signal_ignored = "trap '' TERM; while :; do sleep 600; done"
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sh", "-c", signal_ignored])
    with open(f"{path}.new", "w") as file:  # noqa: PTH123
        file.write(f"{os.getpid()} {child.pid}")
    os.replace(f"{path}.new", path)  # noqa: PTH105
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.05)


class Pair:
    """Equal by value, but pickled in the order in which its attributes were set."""

    def __init__(self, *, reverse: bool) -> None:
        names = ("right", "left") if reverse else ("left", "right")
        for name in names:
            setattr(self, name, name * 3)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return 0


@kiln.task
def takes(pair: object, notes: str) -> int:
    """Note this call; return how many notes there are."""
    with open(notes, "a+") as file:  # noqa: PTH123
        file.write("x")
        file.seek(0)
        return len(file.read())


@kiln.task
def dies_once(notes: str) -> int:
    """Submit a child, get killed, and submit it again with an equal argument that is pickled
    differently.
    """
    first = kiln.context().attempt == 1
    result = takes.submit(Pair(reverse=not first), notes).result()
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


@kiln.task
def dies_once_and_changes_its_mind(notes: str) -> list[int]:
    """Submit a child, get killed, and submit another in its place, distinguished by its JSON."""
    attempt = kiln.context().attempt
    result = takes.submit(attempt, notes).result()
    if attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [attempt, result]
