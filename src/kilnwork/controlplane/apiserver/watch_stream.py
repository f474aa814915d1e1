"""The stream of one watch: initial lines, then a queue of changes, sent in chunks.

Used by `watches`, whose hub fills the queue. Initial lines are encoded as they are sent: a watch of
many objects holds references to them and no copies. A change is encoded once and shared by all
watches that send it as it is stored.
"""

import asyncio
import collections
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane import store_types
from kilnwork.controlplane.apiserver import builtin, lists, statuses

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 32 * 1024 * 1024
"""Bytes that may be queued for a slow client before its watch is ended."""

PIECE_BYTES = 64 * 1024
"""Bytes that are encoded at once: as much as a connection buffers before its client reads."""

Form = Callable[[bytes], bytes]
"""Converts a stored object to the format that the client asked for (a Table, only metadata)."""


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a watch."""

    served: builtin.ServedResource
    chosen: lists.ObjectSelection
    start: int | None
    """Sequence number after which changes are sent; None: all existing objects first."""
    timeout_s: float
    bookmarks: bool
    initial_events: bool
    from_now: bool = False
    """Send only future changes; `start` is ignored."""
    not_older: str = ""
    """resourceVersion that the initial events must have reached."""
    form: Form | None = None
    metadata_only: bool = False
    """Send bookmarks as PartialObjectMetadata too: clients check their kind."""


class SharedChange:
    """A change of the store, decoded and encoded at most once for all watches."""

    def __init__(self, change: store_types.StoreChange) -> None:
        self.change = change
        self._new: tuple[lists.SelectorDecoder, meta.JsonObject] | None = None
        self._old: tuple[lists.SelectorDecoder, meta.JsonObject] | None = None
        self._lines: dict[str, bytes] = {}

    def new(self, look: lists.SelectorDecoder) -> meta.JsonObject:
        """Return the fields of the object after the change that selectors need."""
        if self._new is None or self._new[0] is not look:
            self._new = look, look(self.change.raw)
        return self._new[1]

    def old(self, look: lists.SelectorDecoder) -> meta.JsonObject:
        """Return the fields of the object before the change that selectors need."""
        if self._old is None or self._old[0] is not look:
            self._old = look, look(self.change.previous or b"{}")
        return self._old[1]

    def line(self, action: str, raw: bytes) -> bytes:
        """Return the line of the stream. All watches that do not convert it share the bytes."""
        # The action determines the bytes: a change has one DELETED line, with the deleted object or
        # with its last selected state.
        encoded = self._lines.get(action)
        if encoded is None:
            encoded = self._lines[action] = line(action, raw)
        return encoded


class _Unformed(NamedTuple):
    """A change that is converted only when it is sent: the first Table of a stream has columns."""

    action: str
    raw: bytes


def line(action: str, raw: bytes) -> bytes:
    """Return the encoded watch event."""
    return b'{"type":"' + action.encode() + b'","object":' + raw + b"}\n"


_FAILED = line("ERROR", statuses.internal("see the server's log").body())


class WatchStream:
    """The stream of one client: the hub queues lines, and the sender of the response takes them."""

    def __init__(self, wants: WatchRequest) -> None:
        self.wants = wants
        self._first: Iterator[bytes] | None = None
        self._queue: collections.deque[bytes | _Unformed] = collections.deque()
        self._queued_bytes = 0
        self._ended = False
        self._wake = asyncio.Event()

    @property
    def beginning(self) -> bool:
        """Return whether some of the initial lines have not been taken yet."""
        return self._first is not None

    @property
    def has_lines(self) -> bool:
        """Return whether a line can be taken without waiting."""
        return self.beginning or bool(self._queue)

    def set_initial_lines(self, lines: Iterator[bytes]) -> None:
        """Set the initial lines, which come before all changes. They are generated when taken."""
        self._first = lines
        self._wake.set()

    def offer(self, shared: SharedChange) -> None:
        """Queue a change if it concerns this watch.

        A change that cannot be decoded ends the watch.
        """
        if self._ended:
            return
        try:
            event = self.as_event(shared)
        except Exception:
            log.exception("watch ended, a change cannot be read", extra=self._log_fields())
            self._queue.append(_FAILED)
            self.end()
            return
        if event is None:
            return
        action, raw = event
        if self.wants.form is None:
            self._queue_line(shared.line(action, raw))
        else:
            self._queue_line(_Unformed(action, raw))

    def as_event(self, shared: SharedChange) -> tuple[str, bytes] | None:
        """Return action and object of the event for a change.

        Returns None if the change does not concern this watch.
        """
        change, chosen = shared.change, self.wants.chosen
        if not chosen.matches_key(change.key):
            return None
        if chosen.everything:
            return change.action, change.raw
        look = lists.selector_decoder(self.wants.served.selectable)
        was = change.previous is not None and chosen.matches(
            change.key, functools.partial(shared.old, look)
        )
        if change.action == store_types.Action.DELETED:
            return (change.action, change.raw) if was else None
        now = chosen.matches(change.key, functools.partial(shared.new, look))
        if now:
            return store_types.Action.MODIFIED if was else store_types.Action.ADDED, change.raw
        if was and change.previous is not None:
            # As in the real watch cache: the old object, with the resourceVersion of the change.
            return store_types.Action.DELETED, store_types.last_state(
                change.previous, change.sequence
            )
        return None

    def format_line(self, action: str, raw: bytes) -> bytes:
        """Return a line in the format that the client asked for."""
        return line(action, raw if self.wants.form is None else self.wants.form(raw))

    def end(self) -> None:
        """End the stream after the lines that are queued."""
        self._ended = True
        self._wake.set()

    def abandon(self) -> None:
        """End the stream now, because its client has disconnected."""
        self._first = None
        self._clear()
        self.end()

    async def take(self, timeout_s: float) -> bytes | None:
        """Return the next lines, b"" when none came in time, or None at the end of the stream.

        When it returns b"", no line is queued. So a bookmark that the caller sends before its next
        await does not overtake a change.
        """
        piece = self._next_chunk()
        if not piece and not self._ended:
            self._wake.clear()
            # A line may be queued in the same loop iteration as the timeout: check again below.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            piece = self._next_chunk()
        return None if not piece and self._ended else piece

    def _next_chunk(self) -> bytes:
        lines: list[bytes] = []
        size = 0
        while size < PIECE_BYTES and (one := self._next()) is not None:
            lines.append(one)
            size += len(one)
        return b"".join(lines)

    def _next(self) -> bytes | None:
        """Return one line, or an ERROR event as the last line if the line cannot be generated."""
        try:
            return self._next_line()
        except Exception:
            log.exception("watch ended, an object cannot be shown", extra=self._log_fields())
            self.abandon()
            return _FAILED

    def _next_line(self) -> bytes | None:
        if self._first is not None:
            one = next(self._first, None)
            if one is not None:
                return one
            self._first = None
        if not self._queue:
            return None
        queued = self._queue.popleft()
        if isinstance(queued, _Unformed):
            self._queued_bytes -= len(queued.raw)
            return self.format_line(queued.action, queued.raw)
        self._queued_bytes -= len(queued)
        return queued

    def _queue_line(self, queued: bytes | _Unformed) -> None:
        """Queue a line.

        A client with too many unread bytes is disconnected and must watch again.
        """
        self._queue.append(queued)
        self._queued_bytes += len(queued.raw if isinstance(queued, _Unformed) else queued)
        if self._queued_bytes > MAX_QUEUED_BYTES:
            log.warning("watch ended, its client is too slow", extra=self._log_fields())
            # The queue is freed now, not when the client reads again, since it holds the memory.
            self._clear()
            self._ended = True
        self._wake.set()

    def _log_fields(self) -> dict[str, str]:
        return {"resource": self.wants.served.resource.plural}

    def _clear(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
