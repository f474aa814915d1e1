"""Which blobs a pickled value refers to: noted while it is pickled, listed beside the payload.

Used by `sdk.pickling`, which collects, and by what refers to blobs (`sdk.values.Ref`,
`parts.Part`), which notes its digests when it is pickled. The dispatcher cannot look into a pickle;
what is listed here it writes down with the row, so that the collector knows. A blob that refers to
blobs has no list of its own: what refers to it names those too.
"""

import threading
from collections.abc import Iterable


class _Collecting(threading.local):
    digests: list[bytes] | None = None


_collecting = _Collecting()


def note(digests: Iterable[bytes]) -> None:
    """What is being pickled in this thread refers to these blobs; nothing if no collector is
    there."""
    if _collecting.digests is not None:
        _collecting.digests.extend(digests)


class Noting:
    """See `noting`. A class, since a generator would take as long as pickling a small value."""

    __slots__ = ("_outer",)

    def __enter__(self) -> list[bytes]:
        self._outer = _collecting.digests
        inner: list[bytes] = []
        _collecting.digests = inner
        return inner

    def __exit__(self, *_: object) -> None:
        _collecting.digests = self._outer


def noting() -> Noting:
    """Collect what is noted in this thread until the end of the block; may be nested."""
    return Noting()
