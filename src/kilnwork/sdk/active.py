"""Which session task functions submit to: the innermost one that is open in this process.

Used by `sdk.session`, which is the door, and by futures that come out of a pickle. All threads see
the same one; a slot has one for all the calls that it runs.
"""

from typing import Any

from kilnwork.sdk import errors

_stack: list[Any] = []


def innermost() -> Any:
    """The session that was activated last and is still open; raises `errors.NoSession`."""
    if not _stack:
        raise errors.NoSession
    return _stack[-1]


def add(session: Any) -> None:
    remove(session)
    _stack.append(session)


def remove(session: Any) -> None:
    """It is not to be used any more; repeatable."""
    _stack[:] = [each for each in _stack if each is not session]
