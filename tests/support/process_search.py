"""Finds processes by their command line; in a sandbox those of its Pods too."""

import contextlib
from pathlib import Path


def pid_of_command(program: str, word: str) -> int:
    """Return the pid of a process of `program` (last part of a path) with `word` in its
    arguments.
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if word in words and any(Path(found).name == program for found in words):
                    return int(entry.name)
    raise AssertionError(f"no process of {program} {word}")
