"""Keeps a cache equal to the server's objects: one list, then a watch that resumes where it
stopped.

Used by the manager, the local node and executors. It reports changes to its subscribers and decides
nothing. After a lost connection it resumes at the last resourceVersion; if the server cannot
continue from there (410, and other errors that `PASSING` does not list), it lists again and reports
only the differences. It never ends by itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kilnwork.api import api_resources as resources
from kilnwork.kit import backoff, ids
from kilnwork.kube import cache, client, errors, objects, watch_stream

log = logging.getLogger(__name__)

T = TypeVar("T")

OnChange = Callable[[objects.Key, T | None, T | None], None]
"""Receives a change as (key, old, new).

`old` is None for a new object. `new` is None for a deleted one, whose last state is `old`. It is
called in order from the event loop, and must be quick: usually it adds a key to a queue.
"""

BACKOFF = backoff.Backoff(base_s=0.1, max_s=5.0, jitter=0.2)
"""Delays after failures: short at first, since a restarting server is soon back; later longer,
since the server may be down for a while.
"""
PASSING = (0, 401, 403, 429, 503)
"""Statuses that do not mean that a watch cannot resume where it stopped; 0: the server was not
reached.
"""
STEADY_S = 5.0
"""Seconds after which a watch counts as successful even if it has reported no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The selection of the objects of a resource to follow; by default all objects.

    `oldest_first`: report listed objects in the order of their age, not by name as the server lists
    them.
    """

    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""
    oldest_first: bool = False


class Reflector(Generic[T]):
    """Follows the objects of one resource; `run` it as a coroutine task, or add it to a manager.

    `synced` is set when the cache is complete for the first time. `problem` says why it is not, or
    why the watch is interrupted now; empty if there is no problem.
    """

    def __init__(
        self,
        kube: client.Client,
        resource: resources.Resource,
        type: type[T],  # noqa: A002
        cache: cache.Cache[T],
        on_change: OnChange[T] | None = None,
        *,
        scope: Scope = Scope(),
    ) -> None:
        self.resource = resource
        self.cache = cache
        self.synced = asyncio.Event()
        self.problem = "not listed yet"
        self.backoff = BACKOFF
        self._client = kube
        self._type = type
        self._scope = scope
        self._subscribers: list[OnChange[T]] = [on_change] if on_change else []
        self._version: str | None = None
        self._entropy = ids.system_entropy()

    def subscribe(self, on_change: OnChange[T]) -> None:
        """Add a function that is called for each change from now on."""
        self._subscribers.append(on_change)

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        now = asyncio.get_running_loop().time
        while True:
            before, began = self._version, now()
            error = await self._round()
            # A server ends every watch after a while: that alone is not a failure.
            good = self._version != before or now() - began >= STEADY_S
            failures = 0 if good else failures + 1
            wait_s = self.backoff.delay_s(failures, entropy=self._entropy)
            if isinstance(error, errors.ApiError) and error.retry_after_s is not None:
                wait_s = max(wait_s, error.retry_after_s)
            await asyncio.sleep(wait_s)

    async def _round(self) -> errors.KubeError | None:
        """List the objects if needed, then watch once; return the error that ended the watch, if
        any.
        """
        try:
            if self._version is None:
                self._version = await self._list()
                self.problem = ""
                self.synced.set()
            await self._watch(self._version)
        except errors.Expired as error:
            log.info("watch is too old, listing again", extra={"resource": self.resource.qualified})
            self._version = None
            return error
        except errors.KubeError as error:
            if _lists_again(error):
                self._version = None
            self.problem = str(error)
            log.warning(
                "cannot follow resource",
                extra={"resource": self.resource.qualified, "error": str(error)},
            )
            return error
        return None

    async def _list(self) -> str:
        """List the objects, update the cache and return the resourceVersion of the list."""
        try:
            return await self._list_by(client.PAGE)
        except errors.Expired:
            # The server dropped the snapshot between two pages; an unpaged list is one snapshot.
            return await self._list_by(0)

    async def _list_by(self, limit: int) -> str:
        seen: set[objects.Key] = set()
        unknown = False
        version, held = "", list[T]()
        pages = self._client.pages(
            self.resource,
            self._scope.namespace,
            type=self._type,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
            limit=limit,
        )
        async with contextlib.aclosing(pages):
            async for page in pages:
                seen.update(map(objects.key, page.items))
                # These objects exist: the cache keeps their last readable states.
                seen.update(page.unreadable)
                unknown = unknown or any(not name for _, name in page.unreadable)
                if self._scope.oldest_first:
                    held += page.items
                else:
                    self._store_all(page.items)
                version = page.resource_version
        held.sort(key=objects.age)
        self._store_all(held)
        # Only after the last page: if a page fails, nothing is dropped. Nor is anything dropped if
        # the name of an object cannot be read, since it may be any object.
        for key in () if unknown else set(self.cache.keys()) - seen:
            # Reflectors of other namespaces may fill the same cache: leave their objects alone.
            if self._scope.namespace in (None, key[0]):
                self._drop(key, None)
        return version

    async def _watch(self, version: str) -> None:
        changes = self._client.watch(
            self.resource,
            self._scope.namespace,
            resource_version=version,
            type=self._type,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
        )
        # `aclosing` ends the request at once; a generator that is only dropped waits for the event
        # loop.
        async with contextlib.aclosing(changes):
            async for change in changes:
                self._take(change)
                # After the cache: an interruption in between repeats the change, and never skips
                # it.
                self._version = change.resource_version or self._version
                self.problem = ""

    def _take(self, change: watch_stream.Change[T]) -> None:
        if change.kind == "DELETED":
            self._drop(change.key, change.object)
        elif change.object is not None:
            # A bookmark has no object: it moves the version, so that a quiet watch does not expire.
            self._store(change.object)

    def _store_all(self, found: Iterable[T]) -> None:
        for obj in found:
            self._store(obj)

    def _store(self, obj: T) -> None:
        key = objects.key(obj)
        old = self.cache.get(key)
        if old is not None and objects.uid(old) != objects.uid(obj):
            # The object was deleted and created again while the watch was interrupted.
            self._drop(key, None)
            old = None
        # The change was reported before: a list repeats what the watch has reported.
        if old is not None and objects.resource_version(old) == objects.resource_version(obj):
            return
        self.cache.put(obj)
        self._tell(key, old, obj)

    def _drop(self, key: objects.Key, last: T | None) -> None:
        known = self.cache.remove(key)
        # A DELETED item has the last state of the object; a list merely does not contain the
        # object.
        old = last if last is not None else known
        if old is not None:
            self._tell(key, old, None)

    def _tell(self, key: objects.Key, old: T | None, new: T | None) -> None:
        for on_change in self._subscribers:
            try:
                on_change(key, old, new)
            # A subscriber's error must neither end the watch nor hide the change from other
            # subscribers.
            except Exception:
                log.exception(
                    "subscriber failed", extra={"resource": self.resource.qualified, "key": key}
                )


def _lists_again(error: errors.KubeError) -> bool:
    """Return whether a new list is needed after this error, by the rules of client-go.

    It is needed if the server cannot continue the watch. One such error is the 500 "etcd event
    received with PrevKv=nil". The server returns it every time if the watch starts right before a
    change whose previous version was removed by compaction.
    """
    return isinstance(error, errors.ApiError) and error.status not in PASSING
