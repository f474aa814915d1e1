"""References to blobs in a pickled value: their digests are collected during pickling, and stored
next to the pickle.

Used by `sdk.serialization`, which collects the digests, and by objects that refer to blobs
(`sdk.values.Ref`, `parts.SplitFile`), which note their digests when they are pickled. The
dispatcher cannot look into a pickle, so it stores the list in the task's row, where the garbage
collection of blobs reads it. If a blob contains references to other blobs, the list names these,
too, since no list is stored with the blob itself.
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

    It is a class, since a context manager made from a generator would take as long as pickling a
    small value.
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
