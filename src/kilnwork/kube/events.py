"""Recorder of kube events (core/v1 Event), which aggregates them so that no loop floods the server.

Used by controllers and the local node. `emit` never waits and never fails: events are written in
the background, and an event that cannot be written is logged and dropped. Not for CloudEvents.
`Aggregator` decides what to write; `Recorder` writes it. Rules and figures are those of client-go's
event correlator.
"""

import asyncio
import collections
import contextlib
import hashlib
import logging
from typing import Any

import msgspec

from kilnwork.api import api_resources as resources
from kilnwork.api import meta
from kilnwork.kit import backoff, clock, coroutines
from kilnwork.kube import client, errors, objects

log = logging.getLogger(__name__)

NORMAL = "Normal"
WARNING = "Warning"

REMEMBERED = 4096
"""Maximum number of different kube events whose repetitions are counted rather than written
again.
"""
SIMILAR = 10
"""Maximum number of different texts about one object with one reason within `SIMILAR_S`; further
ones share an entry.
"""
SIMILAR_S = 600.0
BURST = 25
"""Maximum number of kube events about one object at once; after that, one per `REFILL_S`."""
REFILL_S = 300.0
MESSAGE_CHARS = 1024
PENDING = 1000
"""Maximum number of entries that wait to be written; further ones are dropped, so that memory does
not fill up while the server cannot be reached.
"""
TRIES = 12
BACKOFF = backoff.Backoff(base_s=0.2, max_s=10.0)
"""Delays between tries to write one entry: together a minute, in which a server has time to
restart.
"""


class Reference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """core/v1 ObjectReference: the object that a kube event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


def reference(resource: resources.Resource, obj: Any) -> Reference:
    namespace, name = objects.key(obj)
    return Reference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=name,
        namespace=namespace,
        uid=objects.uid(obj),
    )


class Entry(msgspec.Struct):
    """An Event object and its count, which is increased until the entry is dropped from memory.

    `name`: the name of the Event object; kept while it is unknown whether the server has created
    the object.
    """

    about: Reference
    type: str
    reason: str
    message: str
    first_s: float
    last_s: float
    count: int = 0
    name: str = ""
    written: bool = False


class _Similar(msgspec.Struct):
    began_s: float
    messages: set[str] = msgspec.field(default_factory=set)


class _Bucket(msgspec.Struct):
    tokens: float
    seen_s: float


class Aggregator:
    """Decides which entry counts a kube event, or that the event is dropped.

    It uses neither a clock nor a server.
    """

    def __init__(self) -> None:
        self._entries: collections.OrderedDict[tuple[str, ...], Entry] = collections.OrderedDict()
        self._similar: collections.OrderedDict[tuple[str, ...], _Similar] = (
            collections.OrderedDict()
        )
        self._buckets: collections.OrderedDict[tuple[str, ...], _Bucket] = collections.OrderedDict()

    def note(
        self, about: Reference, type_: str, reason: str, *, message: str, now_s: float
    ) -> Entry | None:
        """Count a kube event and return its entry, or None if the object has had too many
        events.
        """
        identity = (about.kind, about.namespace, about.name, about.uid)
        if not self._allowed(identity, now_s):
            return None
        group = (*identity, type_, reason)
        key: tuple[str, ...] = (*group, message)
        if self._too_many_texts(group, message, now_s):
            key, message = group, f"(combined from similar events): {message}"
        entry = self._entries.get(key)
        if entry is None:
            entry = Entry(about, type_, reason, message, first_s=now_s, last_s=now_s)
            _remember(self._entries, key, entry)
        self._entries.move_to_end(key)
        entry.message = message[:MESSAGE_CHARS]
        entry.last_s = now_s
        entry.count += 1
        return entry

    def _allowed(self, identity: tuple[str, ...], now_s: float) -> bool:
        bucket = self._buckets.get(identity)
        if bucket is None:
            bucket = _Bucket(BURST, now_s)
            _remember(self._buckets, identity, bucket)
        self._buckets.move_to_end(identity)
        bucket.tokens = min(BURST, bucket.tokens + (now_s - bucket.seen_s) / REFILL_S)
        bucket.seen_s = now_s
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _too_many_texts(self, group: tuple[str, ...], message: str, now_s: float) -> bool:
        similar = self._similar.get(group)
        if similar is None or now_s - similar.began_s > SIMILAR_S:
            similar = _Similar(now_s)
            _remember(self._similar, group, similar)
        self._similar.move_to_end(group)
        if message in similar.messages:
            return False
        if len(similar.messages) >= SIMILAR:
            return True
        similar.messages.add(message)
        return False


def _remember(store: Any, key: tuple[str, ...], value: object) -> None:
    store[key] = value
    while len(store) > REMEMBERED:
        store.popitem(last=False)


class Recorder:
    """Writes kube events in the background; a service of the manager.

    `component` and `host` name the source of the events (EventSource).
    """

    def __init__(
        self,
        kube: client.Client,
        *,
        component: str,
        host: str = "",
        time: clock.Clock | None = None,
        retries: backoff.Backoff = BACKOFF,
    ) -> None:
        self._client = kube
        self._component = component
        self._host = host
        self._clock = time or clock.SystemClock()
        self._retries = retries
        self._aggregator = Aggregator()
        self._pending: dict[int, Entry] = {}
        self._named = 0
        self._waiting = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._background = coroutines.BackgroundWork("kube events")

    async def start(self) -> None:
        self._background.start("writer", self._write_all())

    async def stop(self) -> None:
        """Write pending events for at most a second, then end."""
        await self.flush(timeout_s=1.0)
        await self._background.stop()

    async def flush(self, *, timeout_s: float = 5.0) -> bool:
        """Wait until all emitted events are written or dropped; return False after `timeout_s`."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def emit(self, about: Reference, type_: str, reason: str, message: str) -> None:
        """Emit a kube event about an object, with a reason in CamelCase.

        `type_` is NORMAL or WARNING.
        """
        now_s = self._clock.wall()
        entry = self._aggregator.note(about, type_, reason, message=message, now_s=now_s)
        # The pending entry has been counted already. Its id is not reused: the dict keeps it alive.
        if entry is None or id(entry) in self._pending:
            return
        if len(self._pending) >= PENDING:
            log.warning("kube event dropped, too many are waiting", extra={"reason": reason})
            return
        self._pending[id(entry)] = entry
        self._waiting.set()
        self._idle.clear()

    async def _write_all(self) -> None:
        while True:
            await self._waiting.wait()
            while self._pending:
                # Removed before the write: an event that comes meanwhile queues its entry again.
                entry = self._pending.pop(next(iter(self._pending)))
                await self._write(entry)
            # Nothing was awaited since `_pending` was found empty.
            self._waiting.clear()
            self._idle.set()

    async def _write(self, entry: Entry) -> None:
        """Write one entry; log and drop it if it cannot be written."""
        for attempt in range(1, TRIES + 1):
            try:
                await self._put(entry)
                return
            except errors.KubeError as error:
                retry = isinstance(error, errors.ApiError) and error.retry
                if not retry or attempt == TRIES:
                    log.warning(
                        "kube event dropped",
                        extra={
                            "reason": entry.reason,
                            "object_namespace": entry.about.namespace,
                            "object": entry.about.name,
                            "error": str(error),
                        },
                    )
                    return
                await asyncio.sleep(self._retries.delay_s(attempt))

    async def _put(self, entry: Entry) -> None:
        # Kube events of cluster-wide objects belong to `default`, as in client-go.
        namespace = entry.about.namespace or "default"
        if entry.written:
            patch = {
                "count": entry.count,
                "message": entry.message,
                "lastTimestamp": clock.rfc3339(entry.last_s),
            }
            try:
                await self._client.merge_patch(resources.EVENTS, entry.name, patch, namespace)
                return
            # By default a server deletes kube events after an hour.
            except errors.NotFound:
                entry.first_s, entry.count = entry.last_s, 1  # start again with a new object
                entry.name, entry.written = "", False
        entry.name = entry.name or self._name(entry)
        body = self._body(entry, entry.name, namespace)
        # An earlier try may have created the object although it seemed to fail.
        with contextlib.suppress(errors.AlreadyExists):
            await self._client.create(resources.EVENTS, body, namespace)
        entry.written = True

    def _name(self, entry: Entry) -> str:
        """Return a unique name for an Event object, made of object and time as by client-go.

        Long names are cut and hashed.
        """
        self._named += 1
        name = entry.about.name
        # A name has at most 253 characters.
        if len(name) > 200:
            name = name[:180].rstrip("-.") + "." + hashlib.sha256(name.encode()).hexdigest()[:16]
        return f"{name}.{int(entry.first_s * 1e6):x}{self._named:x}"

    def _body(self, entry: Entry, name: str, namespace: str) -> meta.JsonObject:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": entry.about,
            "reason": entry.reason,
            "message": entry.message,
            "type": entry.type,
            "count": entry.count,
            "firstTimestamp": clock.rfc3339(entry.first_s),
            "lastTimestamp": clock.rfc3339(entry.last_s),
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
