"""`kiln.future(id)` and `kiln.retry(id)`: access to tasks by id, whichever process submitted them.

Used by programs that come back to their tasks later. The tasks of a volatile `kiln.start()` end
with it and cannot be found afterwards.
"""

from typing import Any

from kilnwork.kit import ids
from kilnwork.sdk import errors, futures, session


def future(task_id: str) -> futures.Future[Any]:
    """Return the future of the task with this id.

    The id is `future.id`, or the one that `kiln tasks -o wide` shows. Raises NoSession, and
    ValueError for a malformed id. Its `result()` raises LookupError if the dispatcher has no such
    task.
    """
    return session.current().future(_checked(task_id))


def retry(task_id: str, *, failed: bool = True, force: bool = False) -> futures.Future[Any]:
    """Run a finished task again and return the future of its new run.

    Like `future.retry()`, this also runs the failed tasks that the task depends on again. With
    `failed=False` the task alone runs again, from its beginning and with new children; with `force`
    too, even if it has succeeded.

    Raises NoSession, ValueError for a malformed id, and ConfigurationError if the task cannot run
    again.
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
