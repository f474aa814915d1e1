"""The stack of the open sessions of this process; task functions submit to the innermost session.

Used by `sdk.session`, which wraps it, by unpickled futures, and by `jobs.work`. All threads share
one stack; a slot has one session for all calls that it runs.
"""

from typing import Any

from kilnwork.sdk import errors

_stack: list[Any] = []


def innermost() -> Any:
    """Return the session that was activated last and is still open. Raises `errors.NoSession`."""
    if not _stack:
        raise errors.NoSession
    return _stack[-1]


def add(session: Any) -> None:
    remove(session)
    _stack.append(session)


def remove(session: Any) -> None:
    """Remove a session from the stack; may be called more than once."""
    _stack[:] = [each for each in _stack if each is not session]
