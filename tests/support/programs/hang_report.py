"""Describes a program that does not end: processes, stacks, and the state of the journal.

Used by `run` at a deadline, before everything is killed.
"""

import contextlib
import os
import signal
import sqlite3
import time
from pathlib import Path

from support.programs import effects, process_family

_OPEN = """SELECT hex(task), hex(parent), child_key, state, reason, attempt, attempt_state,
    losses, excused FROM task WHERE finished IS NULL LIMIT 30"""


def describe(members: process_family.ProcessFamily, directory: Path, lines: Path) -> str:
    """Return a readable report with the stacks of the Python processes."""
    found = members.members()
    parts = [f"processes: {found}"]
    _signal(found, ("driver", "slot"), signal.SIGUSR2)
    time.sleep(0.5)
    _signal(found, ("dispatcher", "agent", "zygote"), signal.SIGABRT)  # PYTHONFAULTHANDLER
    time.sleep(0.5)
    for pid, kind in found.items():
        parts.append(f"{pid} {kind}: {_state(pid)}")
    started = {each.node for each in effects.read(lines) if each.kind == "start"}
    seen = {each.node for each in effects.read(lines) if each.kind == "seen"}
    parts.append(f"started: {sorted(started)}\nseen: {sorted(seen)}")
    parts.append(_journal(directory / "home" / "journal.db"))
    parts += [
        f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}"
        for path in sorted(directory.rglob("*"))
        if path.name.startswith("stacks-") or path.suffix == ".log"
    ]
    text = "\n".join(parts)
    (directory / "stuck.txt").write_text(text)
    return text


def _signal(found: dict[int, str], kinds: tuple[str, ...], number: int) -> None:
    for pid, kind in found.items():
        if kind in kinds:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        wanted = ("State", "PPid", "SigBlk", "SigCgt", "SigPnd")
        return " ".join(line for line in status if line.startswith(wanted))
    return "gone"


def _journal(path: Path) -> str:
    if not path.exists():
        return "no journal"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            rows = database.execute(_OPEN).fetchall()
        except sqlite3.Error as error:
            return f"journal: {error}"
    return "\n".join(["not over:", *(repr(row)[:400] for row in rows)])
