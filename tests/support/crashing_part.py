"""A program that maps or reduces a part and kills itself at its n-th operation on the store.

`python -m support.crashing_part (part|reduce) WORK N`: WORK is the JSON of the work, N the number
of the operation at which the process gets SIGKILL. Prints nothing; exits with 0 if there are fewer
operations.
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


class CrashingStore:
    """Proxy of a store, or of a writer of one, that counts operations and kills the process."""

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
            return CrashingStore(found) if hasattr(found, "commit") else found

        return call


def _tick() -> None:
    CrashingStore.left -= 1
    if CrashingStore.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def _dying_store(url: str) -> Any:
    return CrashingStore(_open(url))


def main(kind: str, raw: str, number: str) -> None:
    """Run the work; the attempt number equals N."""
    CrashingStore.left = int(number)
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
