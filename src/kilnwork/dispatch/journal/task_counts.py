"""How many tasks there are: what a batch changes in the counts by function and state. Pure.

Used by `rows`, which notes each change of a state, by the journal, which writes the sums in the
same transaction, and by `memory_store`. A task is counted by its newest run, as lists show it.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import records

Key = tuple[str, bool, str, str]
"""Namespace, whether it is declared, what it calls ("": it is no call), state."""


class Move(NamedTuple):
    """So many tasks that change their state in the same way, one after the other in a batch."""

    what: records.Template | str
    """The template of a call, or what it calls ("": it is no call)."""
    declared: bool
    namespace: str
    before: str | None
    """None: they are new."""
    after: str
    number: int

    @property
    def of_one(self) -> Iterator["Move"]:
        """The same for each of them."""
        return itertools.repeat(self._replace(number=1), self.number)


def called(spec: api_task.TaskSpec) -> str:
    """Return what a call calls, "" for any other task."""
    return "" if spec.call is None else spec.call.function


def moves(tasks: Iterable[records.Task]) -> tuple[list[Move], list[int]]:
    """Return how states change with a batch, in order, and the rows of the tasks whose does.

    In runs, since most neighbours are calls of the same function that do the same.
    """
    found: list[Move] = []
    rows: list[int] = []
    what: records.Template | str = ""
    declared, namespace, number = False, "", 0
    before = after = None
    for task in tasks:
        stored, state = task.stored, task.state
        if stored is state:
            continue
        rows.append(task.row)
        template = task.template
        if (
            template is not what
            or stored is not before
            or state is not after
            or task.declared is not declared
            or task.namespace != namespace
        ):
            if after is not None:
                found.append(Move(what, declared, namespace, before, after, number))
            what = called(task.spec) if template is None else template
            declared, namespace, before, after = task.declared, task.namespace, stored, state
            number = 0
        number += 1
    if after is not None:
        found.append(Move(what, declared, namespace, before, after, number))
    return found, rows


def deltas(moved: Iterable[Move]) -> Counter[Key]:
    """Return by how many each count changes."""
    changed = Counter[Key]()
    for what, declared, namespace, before, after, number in moved:
        function = what if isinstance(what, str) else called(what.spec)
        changed[namespace, declared, function, after] += number
        if before is not None:
            changed[namespace, declared, function, before] -= number
    return changed


def of_tasks(found: Iterable[tuple[str, int, str, str]]) -> Counter[Key]:
    """Return counts of tasks, given as rows of the journal describe them."""
    return Counter(
        (namespace, bool(declared), function, state)
        for namespace, declared, function, state in found
    )


def counts(numbers: Iterable[tuple[Key, int]]) -> list[model.TaskCount]:
    """Return counts as others see them, sorted."""
    return sorted(
        (
            model.TaskCount(namespace, declared, function, api_task.State(state), number)
            for (namespace, declared, function, state), number in numbers
            if number
        ),
        key=lambda one: (one.namespace, one.declared, one.function, one.state),
    )
