"""Batching: groups calls, watches and cancels into few frames, none larger than the limit.

Used by `sdk.session`. Sizes are upper bounds; they are computed from the fields of a call that have
no fixed length.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from kilnwork.api import attempts, calls
from kilnwork.channel import messages
from kilnwork.kit import ids

CALLS = 256
BYTES = 128 * 1024
"""Numbers of calls and of bytes from which a Submit is sent."""

MAX_CALL_BYTES = messages.MAX_FRAME_BYTES - BYTES - 16 * 1024
"""Maximum size of one call, with which a Submit is never larger than a frame: about 40,000
futures."""

_IDS_IN_A_FRAME = 8192


def size(
    arguments: attempts.Payload,
    needs: tuple[ids.TaskId, ...],
    name: str | None,
    key: str | None,
) -> int:
    """Return an upper bound of the bytes that a call takes in a frame."""
    found = len(arguments.data) + 20 * len(needs) + 36 * len(arguments.blobs) + 100
    if name is not None or key is not None:
        found += 4 * (len(name or "") + len(key or ""))
    return found


def submits(items: Iterable[calls.CallItem]) -> Iterator[messages.Submit]:
    """Yield Submit messages with calls that were already sent on an earlier connection."""
    some: list[calls.CallItem] = []
    together = 0
    for item in items:
        more = size(item.arguments, item.needs, item.name, item.key)
        if some and (len(some) >= CALLS or together + more > MAX_CALL_BYTES):
            yield messages.Submit(tuple(some), again=True)
            some, together = [], 0
        some.append(item)
        together += more
    if some:
        yield messages.Submit(tuple(some), again=True)


def watches(items: Iterable[calls.Watched]) -> Iterator[messages.Watch]:
    left = iter(items)
    while some := tuple(islice(left, _IDS_IN_A_FRAME)):
        yield messages.Watch(some)


def cancels(tasks: Sequence[ids.TaskId], *, recursive: bool) -> Iterator[messages.Cancel]:
    for start in range(0, len(tasks), _IDS_IN_A_FRAME):
        yield messages.Cancel(tuple(tasks[start : start + _IDS_IN_A_FRAME]), recursive)
