"""`kiln.future(id)` and `kiln.retry(id)`: tasks that any process has submitted.

Used by programs that come back to their tasks. Not for tasks of a volatile `kiln.start()` that is
over: those are gone with it.
"""

from typing import Any

from kilnwork.kit import ids
from kilnwork.sdk import errors, futures, session


def future(task_id: str) -> futures.Future[Any]:
    """The future of the task with this id (`future.id`, or what `kiln tasks -o wide` shows).

    Raises NoSession, and ValueError for what is no id. Its `result()` raises LookupError if the
    dispatcher knows no such task.
    """
    return session.current().future(_checked(task_id))


def retry(task_id: str, *, failed: bool = True, force: bool = False) -> futures.Future[Any]:
    """Start a task again that is over; gives the future of its new run.

    What failed of it and around it runs again, as `future.retry()` says, unless `failed` is False:
    then the task alone runs again, from its beginning, with new children; `force`: even if it has
    succeeded.

    Raises NoSession, ValueError for what is no id, and ConfigurationError when it cannot run again.
    """
    if failed and force:
        raise errors.ConfigurationError(
            "failed=True, force=True: what has succeeded is reused, or runs again with failed=False"
        )
    return session.current().retry(_checked(task_id), failed=failed, force=force)


def _checked(task_id: str) -> ids.TaskId:
    try:
        return ids.task_id(task_id)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            f"{task_id!r} is no task id: give what future.id was, or an id of `kiln tasks -o wide`"
        ) from None
