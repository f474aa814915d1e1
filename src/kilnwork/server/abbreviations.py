"""Which task some digits of an id mean, of those whose ids begin or end with them.

Used by `/v1` and by `kiln result --data`, which reads a journal without it. How ids are looked for
is the journal's; see `dispatch.journal.sqlite.queries`.
"""

from collections.abc import Sequence

from kilnwork.kit import ids
from kilnwork.server import errors

MAX_SHOWN = 5
"""So many ids are named where several begin or end so; ask the journal for one more."""


def only(digits: str, found: Sequence[ids.TaskId]) -> ids.TaskId | None:
    """The one task that was found; None for none. Raises `Conflict` for several."""
    if len(found) > 1:
        shown = ", ".join(ids.task_text(task) for task in found[:MAX_SHOWN])
        more = ", …" if len(found) > MAX_SHOWN else ""
        raise errors.Conflict(
            f"{digits} begins or ends the ids of several tasks: {shown}{more}: write more of it"
        )
    return found[0] if found else None
