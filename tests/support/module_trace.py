"""Profiler that records which modules a task passes, in every process of a program.

A module is *passed* when one of its functions is called with the task or returns it: a value that
holds the mark that the task carries, or its id, at most `DEPTH` containers deep. `self` does not
count, nor do constructors, so modules that only declare values are not passed; nor do `kit` (ids,
clocks, logs) and `api` (facts about a value).

Each process that imports the `sitecustomize` of `prepare` records while the switch is on, and so do
its forks. Imports nothing of kilnwork, which would change what is measured.
"""

import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

MARK = "the-task-that-is-followed"
DEPTH = 5
_VARIABLE = "KILN_MODULE_TRACE"
_MAX_PARTS = 50
_HELPERS = ("kilnwork.kit.", "kilnwork.api.")
_OMITTED = ("__init__", "__repr__", "<lambda>")


class Passed(NamedTuple):
    """The first call of a function with the task."""

    at: float
    pid: int
    module: str
    function: str


class Recorder:
    """The profiler of one process: appends a line for each function that gets the task."""

    def __init__(self, directory: Path) -> None:
        with (directory / "switch").open("r+b") as file:
            self._switch = mmap.mmap(file.fileno(), 1)
        self._directory = directory
        self._seen: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        """See `sys.setprofile`."""
        if self._switch[0] == 0 or event not in ("call", "return"):
            return
        module = frame.f_globals.get("__name__", "")
        function = frame.f_code.co_qualname
        if (module, function) in self._seen or not _counts(module, function):
            return
        if event == "call":
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            values = [frame.f_locals.get(name) for name in names if name != "self"]
        else:
            values = [value]
        if any(_holds(one, DEPTH) for one in values):
            self._seen.add((module, function))
            line = json.dumps(Passed(time.monotonic(), os.getpid(), module, function))
            with (self._directory / "passed").open("a") as file:
                file.write(line + "\n")


def _counts(module: str, function: str) -> bool:
    ours = module.startswith("kilnwork.") and not module.startswith(_HELPERS)
    return ours and not function.endswith(_OMITTED)


def _holds(value: object, depth: int) -> bool:
    if isinstance(value, bytes | bytearray | memoryview):
        return MARK.encode() in bytes(value)
    if isinstance(value, str):
        return MARK in value
    if depth == 0 or value is None or isinstance(value, int | float):
        return False
    if isinstance(value, Mapping):
        parts = [*list(value.keys())[:_MAX_PARTS], *list(value.values())[:_MAX_PARTS]]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)[:_MAX_PARTS]
    else:
        names: Iterable[str] = getattr(value, "__struct_fields__", ())
        names = names or getattr(value, "__dataclass_fields__", ())
        parts = [getattr(value, name, None) for name in names]
    return any(_holds(part, depth - 1) for part in parts)


def install() -> None:
    """Record in this process, in all its threads and forks."""
    recorder = Recorder(Path(os.environ[_VARIABLE]))
    threading.setprofile(recorder)
    sys.setprofile(recorder)


def switch(directory: Path, *, on: bool) -> None:
    """Start or stop recording in all processes."""
    with (directory / "switch").open("r+b") as file:
        file.write(bytes([on]))


def prepare(directory: Path) -> dict[str, str]:
    """Return the environment for the first process."""
    (directory / "switch").write_bytes(b"\0")
    (directory / "passed").touch()
    customize = "from support import module_trace\n\nmodule_trace.install()\n"
    (directory / "sitecustomize.py").write_text(customize)
    path = os.pathsep.join([str(directory), str(Path(__file__).parents[1])])
    return {"PYTHONPATH": path, _VARIABLE: str(directory)}


def passed(directory: Path) -> list[Passed]:
    """Return what was recorded, in order of time."""
    lines = (directory / "passed").read_text().splitlines()
    return sorted(Passed(*json.loads(line)) for line in lines)


def until(found: list[Passed], module: str, function: str) -> dict[str, list[str]]:
    modules: dict[str, list[str]] = {}
    for one in found:
        modules.setdefault(one.module.removeprefix("kilnwork."), []).append(one.function)
        if (one.module, one.function) == (f"kilnwork.{module}", function):
            return modules
    raise AssertionError(f"{module}.{function} was not passed: {found}")
