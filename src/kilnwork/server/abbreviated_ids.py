"""Resolves an abbreviated task id: digits that begin or end the id.

Used by `/v1` and by `kiln result --data`, which reads a journal without a server. The search itself
is in `dispatch.journal.sqlite.queries`.
"""

from collections.abc import Sequence

from kilnwork.kit import ids
from kilnwork.server import errors

MAX_SHOWN = 5
"""Number of ids listed when several match; ask the journal for one more."""


def find_only(digits: str, found: Sequence[ids.TaskId]) -> ids.TaskId | None:
    """Return the only task in `found`, or None if `found` is empty. Raises `Conflict` if it has
    several tasks.
    """
    if len(found) > 1:
        shown = ", ".join(ids.task_text(task) for task in found[:MAX_SHOWN])
        more = ", …" if len(found) > MAX_SHOWN else ""
        raise errors.Conflict(
            f"{digits} begins or ends the ids of several tasks: {shown}{more}: write more of it"
        )
    return found[0] if found else None
