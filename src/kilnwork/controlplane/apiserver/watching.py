"""Watches: a stream of changes for each client that asked, told once they are committed.

Used by `resources`. A change is encoded once and shared by all watches that take it as it is
stored; a watch that waits holds only its queue. A watch begins at a resourceVersion of the log, or
with everything there is. One that is too slow is ended: its client watches again from where it was.
"""

import asyncio
import base64
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane import errors, objects, store
from kilnwork.controlplane.apiserver import builtin, forms, lists, options, requests, statuses
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines, ids

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 32 * 1024 * 1024
"""What may wait for a slow client before its watch is ended."""

BOOKMARK_EVERY_S = 60.0
MIN_TIMEOUT_S = 1800
"""Without timeoutSeconds a watch lasts this long to twice as long, as the real server's."""

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BLUEPRINT = "kubernetes.io/initial-events-list-blueprint"
"""An empty list of the kind, by which clients make a list of the initial events (KEP-3157)."""

Form = Callable[[bytes], bytes]
"""From a stored object to what the client asked to see (a Table, only metadata)."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch request wants. `start` None: everything there is first, then changes.

    `metadata_only`: bookmarks too come as PartialObjectMetadata, which clients check.
    """

    served: builtin.Served
    chosen: lists.Selection
    start: int | None
    timeout_s: float
    bookmarks: bool
    initial_events: bool
    form: Form | None = None
    metadata_only: bool = False


def asked(
    request: requests.Request,
    served: builtin.Served,
    *,
    form: Form | None,
    entropy: ids.Entropy,
    metadata_only: bool = False,
) -> Asked:
    """Read a watch request; 400 or 422 for what makes no sense."""
    found = options.ListOptions.parse(request.query, watch=True)
    version = lists.sequence_number(found.version)
    everything = found.initial_events or (found.initial_events is None and not version)
    return Asked(
        served=served,
        chosen=lists.selection(request, served),
        start=None if everything else version,
        timeout_s=float(found.timeout_s or MIN_TIMEOUT_S * (1 + entropy.random())),
        bookmarks=found.bookmarks,
        initial_events=bool(found.initial_events),
        form=form,
        metadata_only=metadata_only,
    )


class _Look:
    """One change, decoded and encoded at most once for all watches."""

    def __init__(self, change: objects.Change) -> None:
        self.change = change
        self._new: meta.JsonObject | None = None
        self._old: meta.JsonObject | None = None
        self._lines: dict[str, bytes] = {}

    def new(self) -> meta.JsonObject:
        if self._new is None:
            self._new = self.change.decode()
        return self._new

    def old(self) -> meta.JsonObject:
        if self._old is None:
            self._old = msgspec.json.decode(self.change.previous or b"{}")
        return self._old

    def line(self, action: str, raw: bytes) -> bytes:
        """The line of the stream; the same bytes for every watch that needs no other form."""
        found = self._lines.get(action)
        if found is None:
            found = self._lines[action] = _line(action, raw)
        return found


def _line(action: str, raw: bytes) -> bytes:
    return b'{"type":"' + action.encode() + b'","object":' + raw + b"}\n"


class Watch:
    """One client's stream: a queue of lines, filled by the hub and emptied by `run`."""

    def __init__(self, wants: Asked) -> None:
        self.wants = wants
        self._lines: list[bytes] = []
        self._room = sys.maxsize
        self._ended = False
        self._wake = asyncio.Event()

    def offer(self, look: _Look) -> None:
        """Queue a change if it concerns this watch, as what it is to this watch (KEP-95)."""
        told = self._as_seen(look)
        if told is None:
            return
        action, raw = told
        if self.wants.form is not None:
            self.add(_line(action, self.wants.form(raw)))
        else:
            self.add(look.line(action, raw))

    def _as_seen(self, look: _Look) -> tuple[str, bytes] | None:
        change, chosen = look.change, self.wants.chosen
        if not chosen.matches_key(change.key):
            return None
        if chosen.everything:
            return change.action, change.raw
        was = change.previous is not None and chosen.matches(change.key, look.old)
        if change.action == objects.Action.DELETED:
            return (change.action, change.raw) if was else None
        now = chosen.matches(change.key, look.new)
        if now:
            return objects.Action.MODIFIED if was else objects.Action.ADDED, change.raw
        if was and change.previous is not None:
            return objects.Action.DELETED, objects.last_state(change.previous, change.sequence)
        return None

    def add(self, line: bytes) -> None:
        """Queue a line; a client that lets too much wait is cut off, and told nothing more."""
        if self._ended:
            return
        self._lines.append(line)
        self._room -= len(line)
        if self._room < 0:
            log.warning(
                "watch ended, its client is too slow",
                extra={"resource": self.wants.served.resource.plural},
            )
            self._lines.clear()
            self._ended = True
        self._wake.set()

    def allow_queue(self) -> None:
        """From here on only so much may wait; what a watch begins with may be more."""
        self._room = MAX_QUEUED_BYTES

    def end(self) -> None:
        """Let the stream end after what is queued."""
        self._ended = True
        self._wake.set()

    async def take(self, timeout_s: float) -> bytes | None:
        """All lines that wait, empty bytes when none came in time, None at the end.

        Empty bytes mean that nothing waits at the moment of the return: a bookmark that is made
        before the next await passes no change.
        """
        if not self._lines and not self._ended:
            self._wake.clear()
            # A line may come in the turn of the loop in which the time ends: look again below.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
        if not self._lines:
            return None if self._ended else b""
        lines, self._lines = self._lines, []
        self.allow_queue()
        return b"".join(lines)


class Hub:
    """All open watches. Follows the store."""

    def __init__(self, held: store.Store, *, clock: clocks.Clock) -> None:
        self._store = held
        self._clock = clock
        self._watches: dict[str, dict[Watch, None]] = {}
        self._crew = coroutines.Crew("watches")
        self._unfollow: Callable[[], None] | None = None
        self._closed = False
        self._offered = 0

    def start(self) -> None:
        """Begin to follow the store."""
        self._offered = self._store.sequence
        self._unfollow = self._store.follow(self._tell)

    async def stop(self) -> None:
        """End every stream, cleanly."""
        self._closed = True
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        for watches in self._watches.values():
            for watch in watches:
                watch.end()
        await self._crew.stop()

    def __len__(self) -> int:
        return sum(len(watches) for watches in self._watches.values())

    def open(self, wants: Asked) -> Watch:
        """Begin a watch: what was is queued, what will be follows without a gap."""
        watch = Watch(wants)
        try:
            self._begin(watch)
        except errors.TooOld as error:
            watch.add(_line("ERROR", statuses.expired(str(error)).body()))
            watch.end()
        watch.allow_queue()
        if self._closed:
            watch.end()
        self._watches.setdefault(wants.served.resource.qualified, {})[watch] = None
        return watch

    def close(self, watch: Watch) -> None:
        """Forget a watch."""
        self._watches.get(watch.wants.served.resource.qualified, {}).pop(watch, None)

    async def run(self, watch: Watch, receive: requests.Receive, send: requests.Send) -> None:
        """Send the stream until its time is over, the client leaves or the server stops."""
        leaving = self._crew.start("client", _until(receive, watch.end))
        deadline = self._clock.monotonic() + watch.wants.timeout_s
        try:
            while (left := deadline - self._clock.monotonic()) > 0:
                lines = await watch.take(min(left, BOOKMARK_EVERY_S))
                if lines is None:
                    break
                if not lines and watch.wants.bookmarks:
                    lines = _bookmark(watch.wants, self._offered)
                if lines:
                    await send({"type": "http.response.body", "body": lines, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self.close(watch)

    def _begin(self, watch: Watch) -> None:
        """Queue what lies between the start of a watch and now."""
        wants = watch.wants
        qualified = wants.served.resource.qualified
        if wants.start is None:
            for stored in self._store.select(qualified, wants.chosen.namespace):
                if wants.chosen.matches(stored.key, stored.decode):
                    shown = stored.raw if wants.form is None else wants.form(stored.raw)
                    watch.add(_line(objects.Action.ADDED, shown))
            if wants.initial_events and wants.bookmarks:
                watch.add(_bookmark(wants, self._store.sequence, initial=True))
            return
        if wants.start > self._store.sequence:
            raise errors.TooOld(
                f"resource version {wants.start} is newer than the newest one, "
                f"{self._store.sequence}: it comes from another data directory"
            )
        for change in self._store.changes_since(wants.start):
            if change.key.resource == qualified:
                watch.offer(_Look(change))

    def _tell(self, changes: Sequence[objects.Change]) -> None:
        for change in changes:
            watches = self._watches.get(change.key.resource)
            if watches:
                look = _Look(change)
                for watch in watches:
                    _offer(watch, look)
        self._offered = changes[-1].sequence


def _offer(watch: Watch, look: _Look) -> None:
    """Offer a change; a watch that cannot take it ends, and the others go on."""
    try:
        watch.offer(look)
    except Exception:
        log.exception("watch ended, a change cannot be shown", extra={"key": str(look.change.key)})
        watch.add(_line("ERROR", statuses.internal("see the server's log").body()))
        watch.end()


def _bookmark(wants: Asked, sequence: int, *, initial: bool = False) -> bytes:
    """The line that says: you have been told everything up to `sequence`."""
    kind = wants.served.resource
    metadata: dict[str, Any] = {"resourceVersion": str(sequence)}
    if initial:
        metadata["annotations"] = {_INITIAL_EVENTS_END: "true", _BLUEPRINT: _blueprint(kind)}
    marker = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    if wants.metadata_only:
        marker = forms.partial(marker)
    return _line("BOOKMARK", msgspec.json.encode(marker))


def _blueprint(kind: resource.Resource) -> str:
    empty = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {}}
    return base64.b64encode(msgspec.json.encode({**empty, "items": []}) + b"\n").decode()


async def _until(receive: requests.Receive, left: Callable[[], object]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    left()
