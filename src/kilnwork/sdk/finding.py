"""`kiln.future(id)`: the future of a task that somebody has submitted, in whatever process.

Used by programs that come back to their tasks. Not for tasks of a volatile `kiln.start()` that is
over: those are gone with it.
"""

from typing import Any

from kilnwork.kit import ids
from kilnwork.sdk import futures, session


def future(task_id: str) -> futures.Future[Any]:
    """The future of the task with this id (`future.id`, or what `kiln tasks -o wide` shows).

    Raises NoSession, and ValueError for what is no id. Its `result()` raises LookupError if the
    dispatcher knows no such task.
    """
    try:
        found = ids.task_id(task_id)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            f"{task_id!r} is no task id: give what future.id was, or an id of `kiln tasks -o wide`"
        ) from None
    return session.current().future(found)
