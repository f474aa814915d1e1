"""Watcher of the objects of attempts, with one reflector per kind and watched namespace, started at
the first use of the kind.

Used by `executor`. Only objects with our label are watched. If a kind is no longer served, its
reflector keeps retrying at long intervals until the kind comes back; meanwhile `get` returns None.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kilnwork.api import api_resources, meta
from kilnwork.executors.custom_resource import served_kinds
from kilnwork.executors.pod import template
from kilnwork.kit import coroutines
from kilnwork.kube import cache, client, errors, objects, reflector

log = logging.getLogger(__name__)

Changed = Callable[[api_resources.Resource, meta.JsonObject, bool], None]
"""Called with the kind, the current or last state of the object, and whether the object exists."""

SELECTOR = ",".join(f"{key}={value}" for key, value in template.MANAGED.items())
SEARCH_AGAIN_S = 5.0


class _Followed:
    """A watched kind, with its cache and its reflectors, which may have lost their connection."""

    def __init__(self) -> None:
        self.cache: cache.Cache[meta.JsonObject] = cache.Cache()
        self.reflectors: list[reflector.Reflector[meta.JsonObject]] = []

    @property
    def heard(self) -> bool:
        return all(one.synced.is_set() and not one.problem for one in self.reflectors)


class Follower:
    """Watcher of the objects of attempts, with a cache for each kind. `namespaces`: the namespaces
    to watch; all if empty.
    """

    def __init__(self, kube: client.Client, *, namespaces: Sequence[str] = ()) -> None:
        self._client = kube
        self._namespaces = tuple(namespaces) or (None,)
        self._background = coroutines.BackgroundWork("objects of attempts")
        self._kinds: dict[api_resources.Resource, _Followed] = {}
        self._executors: dict[str, Changed] = {}

    def subscribe(self, executor: str, changed: Changed) -> None:
        """Register `changed`, which is called for every change of an object of that executor."""
        self._executors[executor] = changed

    def follow(self, kind: api_resources.Resource) -> None:
        """Begin to watch a kind, unless it is watched already."""
        if kind in self._kinds:
            return
        followed = self._kinds[kind] = _Followed()

        def changed(_: objects.Key, old: Any, new: Any) -> None:
            self._changed(kind, old, new)

        for namespace in self._namespaces:
            scope = reflector.Scope(namespace=namespace, label_selector=SELECTOR)
            one = reflector.Reflector(
                self._client, kind, dict, followed.cache, changed, scope=scope
            )
            followed.reflectors.append(one)
            self._background.start(f"reflector {kind.qualified}", one.run())

    def get(self, kind: api_resources.Resource, key: objects.Key) -> meta.JsonObject | None:
        """Return an object from the cache; None if it is unknown or its kind cannot be watched
        now.
        """
        followed = self._kinds.get(kind)
        return followed.cache.get(key) if followed is not None and followed.heard else None

    async def run(self, kinds: served_kinds.Kinds) -> None:
        """Search for objects that an earlier manager has created, then watch until cancelled."""
        try:
            await self._search(kinds)
            await asyncio.Event().wait()
        finally:
            await self._background.stop()

    async def _search(self, kinds: served_kinds.Kinds) -> None:
        """Begin to watch every allowed kind that has objects of attempts."""
        while True:
            try:
                async for kind in kinds.all_allowed():
                    if kind not in self._kinds and await self._has_objects(kind):
                        self.follow(kind)
            except errors.KubeError as error:
                log.warning("cannot look for objects of attempts", extra={"error": str(error)})
                await asyncio.sleep(SEARCH_AGAIN_S)
            else:
                return

    async def _has_objects(self, kind: api_resources.Resource) -> bool:
        for namespace in self._namespaces:
            try:
                pages = self._client.pages(
                    kind, namespace, type=dict, label_selector=SELECTOR, limit=1
                )
                async for page in pages:
                    return bool(page.items)
            except (errors.Forbidden, errors.NotFound) as error:
                facts = {"resource": kind.qualified, "error": str(error)}
                log.info("cannot look for objects of attempts of a kind", extra=facts)
        return False

    def _changed(
        self, kind: api_resources.Resource, old: meta.JsonObject | None, new: meta.JsonObject | None
    ) -> None:
        seen = new if new is not None else old
        if seen is None:
            return
        executor = (seen["metadata"].get("labels") or {}).get(template.EXECUTOR_LABEL, "")
        changed = self._executors.get(executor)
        if changed is not None:
            changed(kind, seen, new is not None)
