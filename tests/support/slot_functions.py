"""Functions that real slots run by name in tests: well-behaved ones and others."""

import ctypes
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kilnwork.api import attempts, task
from kilnwork.kit import ids
from kilnwork.sdk import context, errors, session, waiting

memory: dict[str, Any] = {}
"""What one call leaves for the next in the same process."""


def add(a: int, b: int = 1) -> int:
    return a + b


def use(mebibytes: int, seconds: float) -> int:
    """Touch so much memory, and keep a CPU busy for so long."""
    held = b"x" * (mebibytes << 20)
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return len(held)


def use_in_a_child(mebibytes: int, seconds: float) -> None:
    """Run `use` in a child process."""
    code = (
        f"import time; held = b'x' * ({mebibytes} << 20)\n"
        f"while time.process_time() < {seconds}: pass"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def fail(text: str) -> None:
    raise ValueError(text)


def exit_by(way: str) -> None:
    if way == "sys.exit":
        sys.exit(3)
    if way == "interrupt":
        raise KeyboardInterrupt
    if way == "memory":
        raise MemoryError
    if way == "recursion":
        exit_by(way)
    if way == "stop":
        raise StopIteration


def die_by(way: str) -> None:
    print("last words", flush=True)
    if way == "exit":
        os._exit(3)
    if way == "segfault":
        ctypes.string_at(0)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def unpicklable() -> Any:
    return threading.Lock()


def pair(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def count_to(n: int) -> Iterator[int]:
    yield from range(n)


def fail_after(n: int) -> Iterator[int]:
    yield from range(n)
    raise ValueError("no more")


def who() -> dict[str, Any]:
    inner = context.context()
    inner.progress(0.5, "half way")
    return {
        "id": inner.task_id,
        "attempt": inner.attempt,
        "name": inner.name,
        "pid": os.getpid(),
        "sid": os.getsid(0),
        "cwd": str(Path.cwd()),
        "environ": dict(os.environ),
        "threads": threading.active_count(),
        "modules": sorted(sys.modules),
        "path": sys.path,
    }


def sleep(seconds: float, sign: str = "") -> str:
    if sign:
        Path(sign).touch()
    time.sleep(seconds)
    return "slept"


def hold(gate: str, sign: str = "") -> str:
    if sign:
        Path(sign).touch()
    while not Path(gate).exists():
        time.sleep(0.005)
    return "stopped"


def spin(seconds: float, sign: str = "") -> str:
    if sign:
        Path(sign).touch()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


def cancelled_how(seconds: float, sign: str) -> None:
    try:
        Path(sign).touch()
        time.sleep(seconds)
    except errors.Cancelled as error:
        seen = f"{type(error).__name__} {error.reason} {context.context().cancelled}"
        print(seen)
        raise


def swallow(seconds: float, sign: str) -> str:
    """Ignore a cancel, which takes a moment."""
    try:
        Path(sign).touch()
        time.sleep(seconds)
    except errors.Cancelled:
        time.sleep(0.3)
    return "never mind"


def deaf(seconds: float, sign: str) -> str:
    """Ignore every signal that can be ignored, inside a call that no signal interrupts."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    Path(sign).touch()
    time.sleep(seconds)
    return "deaf"


DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def leave_daemon(sign: str, then: str = "", seconds: float = 0.0) -> str:
    """Start a process that leaves its session, its parent and our signals behind."""
    subprocess.run([sys.executable, "-S", "-c", DAEMON, sign], env={}, check=True)
    while not Path(sign).exists() or not Path(sign).read_text():
        time.sleep(0.001)
    if then:
        die_by(then)
    time.sleep(seconds)
    return "left"


def fork_daemon(sign: str) -> str:
    """Fork a daemon without exec: it has our environment but no mark."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(sign).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not Path(sign).exists() or not Path(sign).read_text():
        time.sleep(0.001)
    return "left"


def fork_and_return() -> int:
    """Return twice, in two processes."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return pid


def say(text: str, how: str = "print") -> None:
    if how == "print":
        print(text)
    elif how == "partial":
        print(text, end="")
    elif how == "error":
        print(text, file=sys.stderr)
    elif how == "write":
        os.write(1, text.encode() + b"\n")
    elif how == "process":
        subprocess.run(["echo", text], check=True)


def say_and_sleep(text: str, seconds: float) -> None:
    print(text)
    time.sleep(seconds)


def say_much(count: int) -> None:
    line = "x" * 99
    for _ in range(count // 100):
        print(line)


def print_blocks(mebibytes: int) -> None:
    block = (b"x" * 63 + b"\n") * (1 << 14)
    for _ in range(mebibytes):
        os.write(1, block)
    print("the last line")


def misbehave(way: str) -> None:
    """End this process in a way that no function should."""
    if way == "close":
        os.close(1)
        os.close(2)
    elif way == "close python":
        sys.stdout.close()
        sys.stderr.close()
    elif way == "replace":
        sys.stdout = sys.stderr = io.StringIO()
    elif way == "redirect":
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    elif way == "chdir":
        os.chdir("/")
    elif way == "signals":
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                continue
    elif way == "closerange":
        os.closerange(3, 256)
    elif way == "thread":
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    elif way == "recursion":
        sys.setrecursionlimit(100)


def remember(key: str, value: Any = None) -> Any:
    before = memory.get(key)
    memory[key] = value
    return before


def wait_for(awaited: str, timeout: float | None = None) -> Any:
    """Wait for another task and return its value."""
    return session.current().future(ids.task_id(awaited)).result(timeout)


def wait_for_all(awaited: list[str]) -> int:
    here = session.current()
    return sum(waiting.gather(*(here.future(ids.task_id(each)) for each in awaited)).result())


def wait_in_thread(awaited: str) -> Any:
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(wait_for(awaited)))
    waiter.start()
    waiter.join()
    return found[0]


def wait_and_say(awaited: str, before: str, after: str) -> Any:
    print(before)
    value = wait_for(awaited)
    print(after)
    return value


def delegate(awaited: str) -> Any:
    return session.current().future(ids.task_id(awaited))


def depth() -> int:
    """Return how many frames are left before RecursionError."""
    try:
        return 1 + depth()
    except RecursionError:
        return 0


def say_and_return(text: str, value: Any) -> Any:
    print(text)
    return value


def submit_some(count: int) -> None:
    """Submit calls without waiting for them."""
    here = session.current()
    number = here.template(task.TaskSpec(call=task.Call(function="operator:add")))
    arguments = attempts.Payload(attempts.JSON, b"[[1,2],{}]")
    for _ in range(count):
        here.submit(number, function="operator:add", arguments=arguments)
    here.submit(number, function="operator:add", arguments=arguments, key="mine")


class _Slowly:
    """A lock after which every thread but the main one is slow, as on a busy machine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.002)


def submit_beside_slow_threads() -> None:
    """Submit one child; messages of other threads are sent slowly meanwhile."""
    here: Any = session.current()
    if not isinstance(here._lock, _Slowly):
        here._lock = _Slowly()
    number = here.template(task.TaskSpec(call=task.Call(function="operator:add")))
    here.submit(number, function="operator:add", arguments=attempts.Payload(attempts.JSON, b"[]"))


def wait_and_sleep(awaited: str, seconds: float, sign: str) -> str:
    wait_for(awaited)
    return sleep(seconds, sign)


def say_and_die(before: str, seconds: float, after: str) -> None:
    print(before)
    time.sleep(seconds)
    print(after)
    os._exit(3)


def print_natively(size: int) -> int:
    """Hold the interpreter lock while writing, as a C extension may."""
    write = ctypes.PyDLL(None).write
    data, written = b"x" * size, 0
    while written < size:
        written += write(1, data[written:], size - written)
    print("done")
    return written


def log_something(configuration: str) -> None:
    if configuration:
        logging.basicConfig(format=configuration)
    logging.getLogger("mine").warning("careful")
    context.context().logger.setLevel(logging.INFO)
    context.context().logger.info("information")


def eat(mib: int, sign: str = "") -> int:
    """Use so much memory for a while."""
    held = [bytearray(b"x" * (1 << 20)) for _ in range(mib)]
    if sign:
        Path(sign).touch()
    time.sleep(30)
    return len(held)
