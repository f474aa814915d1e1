"""Watches: a stream of committed changes for each client that asks for one.

Used by `resource_handler`; the queue of each watch is a `watch_stream`. A watch begins at a
resourceVersion in the change log, or with all existing objects. A watch whose client reads too
slowly is ended; the client watches again from the last resourceVersion it has seen.
"""

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import api_resources
from kilnwork.controlplane import errors, store, store_types
from kilnwork.controlplane.apiserver import (
    builtin,
    lists,
    options,
    requests,
    response_formats,
    statuses,
    watch_stream,
)
from kilnwork.kit import asgi, coroutines, ids, memory_release
from kilnwork.kit import clock as clocks

BOOKMARK_EVERY_S = 60.0
RELEASE_AFTER = 100
"""Number of ended watches after which free memory is returned to the system: by then, their buffers
have taken a megabyte or more."""
RELEASE_S = 1.0
MIN_TIMEOUT_S = 1800
"""Without timeoutSeconds a watch lasts between once and twice this long, as in kube-apiserver."""

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BLUEPRINT = "kubernetes.io/initial-events-list-blueprint"
"""Annotation: an empty list of the kind, which clients fill with the initial events (KEP-3157)."""


def parse_request(
    request: requests.ApiRequest,
    served: builtin.ServedResource,
    *,
    form: watch_stream.Form | None,
    entropy: ids.Entropy,
    metadata_only: bool = False,
) -> watch_stream.WatchRequest:
    """Parse a watch request. Raises 400 or 422 for invalid options."""
    list_options = options.ListOptions.parse(request.query, watch=True)
    version = lists.sequence_number(list_options.version)
    # resourceVersion unset or "0" begins with synthetic ADDED events, unless sendInitialEvents is
    # false (API concepts, semantics for watch).
    everything = list_options.initial_events or (
        list_options.initial_events is None and not version
    )
    return watch_stream.WatchRequest(
        served=served,
        chosen=lists.selection(request, served),
        start=None if everything else version,
        timeout_s=float(list_options.timeout_s or MIN_TIMEOUT_S * (1 + entropy.random())),
        bookmarks=list_options.bookmarks,
        initial_events=bool(list_options.initial_events),
        from_now=list_options.initial_events is False and not version,
        not_older=list_options.version if list_options.initial_events else "",
        form=form,
        metadata_only=metadata_only,
    )


class WatchHub:
    """Passes the changes of the store to all open watches of the API server."""

    def __init__(self, held: store.Store, *, clock: clocks.Clock) -> None:
        self._store = held
        self._clock = clock
        self._watches: dict[str, dict[watch_stream.WatchStream, None]] = {}
        self._background = coroutines.BackgroundWork("watches")
        self._unfollow: Callable[[], None] | None = None
        self._closed = False
        self._offered = 0
        self._ended = 0

    def start(self) -> None:
        """Subscribe to the changes of the store."""
        self._offered = self._store.sequence
        self._unfollow = self._store.follow(self._on_changes)

    async def stop(self) -> None:
        """End all watches."""
        self._closed = True
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        for watches in self._watches.values():
            for watch in watches:
                watch.end()
        await self._background.stop()

    def __len__(self) -> int:
        return sum(len(watches) for watches in self._watches.values())

    def open(self, wants: watch_stream.WatchRequest) -> watch_stream.WatchStream:
        """Open a watch.

        Past changes or existing objects come first, then new changes, without a gap.
        """
        # No await between choosing the first lines and adding the watch: a change committed in
        # between would be lost.
        watch = watch_stream.WatchStream(wants)
        try:
            watch.set_initial_lines(self._first_lines(watch))
        except errors.TooOld as error:
            _refuse(watch, statuses.expired(str(error)))
        except statuses.StatusError as error:
            _refuse(watch, error)
        if self._closed:
            watch.end()
        self._watches.setdefault(wants.served.resource.qualified, {})[watch] = None
        return watch

    def close(self, watch: watch_stream.WatchStream) -> None:
        """Remove a watch."""
        watches = self._watches.get(watch.wants.served.resource.qualified, {})
        if watch in watches:
            del watches[watch]
            self._release_memory()

    async def run(
        self, watch: watch_stream.WatchStream, request: asgi.Request, response: asgi.Response
    ) -> None:
        """Send the stream until it times out, the client disconnects or the server stops.

        The initial lines are sent in full, even after the timeout: a client could not resume in
        their middle.
        """
        leaving = self._background.start("client", _abandon(watch, request))
        deadline = self._clock.monotonic() + watch.wants.timeout_s
        try:
            while (left := deadline - self._clock.monotonic()) > 0 or watch.beginning:
                lines = await watch.take(min(left, BOOKMARK_EVERY_S))
                if lines is None:
                    break
                if not lines and watch.wants.bookmarks:
                    # The queue is empty: the client has received all changes that were offered.
                    lines = _bookmark(watch.wants, self._offered)
                if lines:
                    await response.write(lines)
                if watch.has_lines:
                    await asyncio.sleep(0)  # a client that reads fast must not starve others
            await response.end()
        finally:
            leaving.cancel()
            self.close(watch)

    def _first_lines(self, watch: watch_stream.WatchStream) -> Iterator[bytes]:
        """Return the lines from the start of a watch until now.

        Objects or changes are selected now; their lines are generated one by one.
        """
        wants = watch.wants
        qualified = wants.served.resource.qualified
        if wants.from_now:
            return iter(())
        if wants.start is None:
            lists.check_reached(self._store, wants.not_older)
            # Copied to a list: when the lines are generated, the store may have changed.
            existing = list(self._store.select(qualified, wants.chosen.namespace))
            return _initial_events(watch, existing, self._store.sequence)
        # A watch that waits for this number would miss all changes up to it.
        if wants.start > self._store.sequence:
            raise errors.TooOld(
                f"resource version {wants.start} is newer than the newest one, "
                f"{self._store.sequence}: it comes from another data directory"
            )
        since = self._store.changes_since(wants.start)
        return _past_changes(
            watch, [change for change in since if change.key.resource == qualified]
        )

    def _release_memory(self) -> None:
        """Return free memory to the system.

        Many ended watches leave holes in the heap.
        """
        self._ended += 1
        if self._ended >= RELEASE_AFTER and not self._closed:
            self._ended = 0
            self._background.start("memory", _release_memory())

    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        for change in changes:
            watches = self._watches.get(change.key.resource)
            if watches:
                shared = watch_stream.SharedChange(change)
                for watch in watches:
                    watch.offer(shared)
        self._offered = changes[-1].sequence


def _refuse(watch: watch_stream.WatchStream, error: statuses.StatusError) -> None:
    """End a watch with an ERROR event.

    Its response already has status 200, as in kube-apiserver.
    """
    watch.set_initial_lines(iter((watch_stream.line("ERROR", error.body()),)))
    watch.end()


def _initial_events(
    watch: watch_stream.WatchStream, there: Sequence[store_types.Stored], sequence: int
) -> Iterator[bytes]:
    wants = watch.wants
    for stored in there:
        if wants.chosen.matches(stored.key, stored.decode):
            yield watch.format_line(store_types.Action.ADDED, stored.raw)
    if wants.initial_events and wants.bookmarks:
        yield _bookmark(wants, sequence, initial=True)


def _past_changes(
    watch: watch_stream.WatchStream, changes: Sequence[store_types.StoreChange]
) -> Iterator[bytes]:
    for change in changes:
        event = watch.as_event(watch_stream.SharedChange(change))
        if event is not None:
            yield watch.format_line(*event)


async def _release_memory() -> None:
    await asyncio.sleep(RELEASE_S)  # connections close a little later than their watches
    await asyncio.to_thread(memory_release.release_free)


def _bookmark(wants: watch_stream.WatchRequest, sequence: int, *, initial: bool = False) -> bytes:
    """Return a bookmark line: the client has received every change up to `sequence`."""
    kind = wants.served.resource
    metadata: dict[str, Any] = {"resourceVersion": str(sequence)}
    if initial:
        metadata["annotations"] = {_INITIAL_EVENTS_END: "true", _BLUEPRINT: _blueprint(kind)}
    marker = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    if wants.metadata_only:
        marker = response_formats.partial(marker)
    return watch_stream.line("BOOKMARK", msgspec.json.encode(marker))


def _blueprint(kind: api_resources.Resource) -> str:
    empty = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {}}
    return base64.b64encode(msgspec.json.encode({**empty, "items": []}) + b"\n").decode()


async def _abandon(watch: watch_stream.WatchStream, request: asgi.Request) -> None:
    """End the watch when its client has closed the connection."""
    await request.wait_disconnected()
    watch.abandon()
