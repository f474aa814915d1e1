"""Checks of the effects that the tasks of a program have written.

Used by `run` after a program has ended well.
"""

import contextlib
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path

from support.programs import effects, nodes

HARMLESS = frozenset({"kill driver", "pause driver", "pause slot", "pause zygote"})
"""Faults after which nothing has a reason to run a second time."""


def twice(program: nodes.Program, found: list[effects.Effect], *, disturbed: bool) -> str:
    """Return what ran twice without a reason, or "". `disturbed`: a fault gave reasons."""
    starts = [each for each in found if each.kind == "start"]
    numbers = set()
    for each in starts:
        if (each.task, each.run, each.attempt) in numbers:
            return f"{each.node}: attempt {each.attempt} of {each.task} was started twice"
        numbers.add((each.task, each.run, each.attempt))
    seen = {each.task: each.at for each in found if each.kind == "seen" and each.task != "-"}
    for each in starts:
        if each.at > seen.get(each.task, each.at):
            return f"{each.node}: attempt {each.attempt} started after its result was seen"
    return _tasks(program, starts) or ("" if disturbed else _attempts(program, starts))


def journal(home: Path) -> str:
    """Return what is wrong with the journal of a home in which nothing runs any more, or ""."""
    with contextlib.closing(sqlite3.connect(home / "journal.db")) as database:
        if (found := database.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
            return f"the journal: {found}"
        left = database.execute(
            "SELECT hex(task), state, reason FROM task WHERE finished IS NULL"
        ).fetchall()
    return f"not over, and nothing runs: {left}" if left else ""


def _tasks(program: nodes.Program, starts: list[effects.Effect]) -> str:
    """Check that a call with a key, and each child of one, is the same task however often it is
    submitted.
    """
    known = defaultdict(set)
    for each in starts:
        known[each.node].add(each.task)
    for call in program.calls:
        if call.key or not program.durable:
            for node in nodes.walk((call,)):
                if len(known[node.id]) > 1:
                    return f"{node.id}: was several tasks: {sorted(known[node.id])}"
    return ""


def _attempts(program: nodes.Program, starts: list[effects.Effect]) -> str:
    """Check that without kills a call that cannot fail starts once."""
    everything = nodes.walk(program.calls)
    if any(node.op in ("crash", "hang") for node in everything):
        return ""  # these kill processes, so calls in the same process run again
    once = {node.id for node in everything if node.op not in ("flaky", "raise")}
    # not by number: an attempt taken back before its start gets another one
    counts = Counter((each.node, each.task) for each in starts if each.node in once)
    for (node, task), count in counts.items():
        if count > 1:
            return f"{node}: {task} was started {count} times, though nothing was killed"
    return ""
