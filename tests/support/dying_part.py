"""Maps a part, or reduces, and is killed at the nth thing it does to the store; run as a program.

`python -m support.dying_part (part|reduce) WORK N`: the JSON of the work, and where SIGKILL comes.
Prints nothing; exits with 0 if there are fewer than N.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Self

import msgspec

from kilnwork.data.stores import store_urls
from kilnwork.jobs.work import part, reduce
from kilnwork.kit import ids
from kilnwork.sdk import context

_open = store_urls.open_store


class Dying:
    """Stands in for a store or a writer of one; counts what is done with it."""

    left = 0

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._counted(found) if callable(found) else found

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._inner)

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            _tick()
            found = method(*args, **kwargs)
            return Dying(found) if hasattr(found, "commit") else found

        return call


def _tick() -> None:
    Dying.left -= 1
    if Dying.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def _dying_store(url: str) -> Any:
    return Dying(_open(url))


def main(kind: str, raw: str, number: str) -> None:
    """See the module. The attempt is the number."""
    Dying.left = int(number)
    store_urls.open_store = _dying_store
    attempt = int(number)
    context.begin(context.Context(ids.TaskId(bytes(16)), run=1, attempt=attempt))
    work = msgspec.json.decode(raw)
    if kind == "part":
        part.run(work)
    else:
        reduce.run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
