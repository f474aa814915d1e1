"""References to blobs in pickled values: collected while a value is pickled, and listed next to the
payload.

Used by `sdk.serialization`, which collects them, and by objects that refer to blobs
(`sdk.values.Ref`, `parts.Part`), which note their digests when they are pickled. The dispatcher
cannot look into a pickle; it stores this list with the row, for the collector. A blob that refers
to other blobs has no list of its own: whatever refers to it names those too.
"""

import threading
from collections.abc import Iterable


class _Collecting(threading.local):
    digests: list[bytes] | None = None


_collecting = _Collecting()


def note(digests: Iterable[bytes]) -> None:
    """Record that the value being pickled in this thread refers to these blobs. Does nothing
    outside of a `noting` block.
    """
    if _collecting.digests is not None:
        _collecting.digests.extend(digests)


class Noting:
    """Context manager that collects the digests passed to `note`; returned by `noting`.

    It is a class, since a generator would take as long as pickling a small value.
    """

    __slots__ = ("_outer",)

    def __enter__(self) -> list[bytes]:
        self._outer = _collecting.digests
        inner: list[bytes] = []
        _collecting.digests = inner
        return inner

    def __exit__(self, *_: object) -> None:
        _collecting.digests = self._outer


def noting() -> Noting:
    """Return a context manager that collects the digests passed to `note` in this thread during its
    block; may be nested.
    """
    return Noting()
