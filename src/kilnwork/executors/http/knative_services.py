"""The Services of Knative: whether a Service is ready for requests, and its URL.

Used by `function` before it sends the request of a `spec.function`. Services are only read, by one
reflector per namespace, started at its first use: a request to a ready Service asks no server.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from kilnwork.api import api_resources, http_validation, meta, reasons
from kilnwork.executors.custom_resource import served_kinds
from kilnwork.kit import coroutines
from kilnwork.kube import cache, client, errors, objects, reflector

API_VERSION, KIND = "serving.knative.dev/v1", "Service"
AGAIN_S = served_kinds.AGAIN_S
"""Interval in seconds at which facts that no watch reports are requested while an attempt waits for
them."""

_CONDITIONS = ("ConfigurationsReady", "RoutesReady", "Ready")
"""Conditions of a Service, the cause first: if a revision failed, `Ready` may say only
`RevisionMissing`."""

_R = reasons.Reason

Waits = Callable[[reasons.Reason, str], None]
"""Called with the reason and message why a Service cannot get requests yet."""


class Services(Protocol):
    """Port that finds the URLs of functions, which are Services of Knative."""

    async def url(self, namespace: str, name: str, waits: Waits) -> str:
        """Wait until a Service is ready, without limit; return its URL.

        `waits` is called with the reason why it is not ready, whenever that reason changes.
        """
        ...


class NotReadyError(Exception):
    """A Service is not ready; the text is Knative's reason."""


def ready_url(service: meta.JsonObject, *, inside: bool) -> str:
    """Return the URL of a ready Service; with `inside`, its cluster-local address. Raises
    NotReadyError.
    """
    metadata, status = service["metadata"], _dict(service.get("status"))
    if status.get("observedGeneration") != metadata.get("generation"):
        raise NotReadyError(f"Knative has not seen generation {metadata.get('generation')} yet")
    listed = status.get("conditions")
    found = {one.get("type"): one for one in map(_dict, listed if isinstance(listed, list) else ())}
    unmet = [_dict(found.get(name)) for name in _CONDITIONS]
    unmet = [one for one in unmet if one.get("status") != "True"]
    if unmet:
        condition = next((one for one in unmet if one.get("message")), unmet[0])
        parts = (condition.get("reason"), condition.get("message") or "it is not Ready")
        raise NotReadyError(": ".join(str(part) for part in parts if part))
    own, public = _dict(status.get("address")).get("url"), status.get("url")
    url = (own or public) if inside else (public or own)
    if not isinstance(url, str) or http_validation.url_problem(url):
        raise NotReadyError(f"it is Ready, and its status has no URL: {url!r}")
    return url


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class ServicesOfCluster:
    """Finder of the Services of one API server.

    `inside`: whether this process runs in the Kubernetes of that API server.
    """

    def __init__(self, kube: client.Client, *, inside: bool) -> None:
        self.kube = kube
        self._inside = inside
        self._kinds = served_kinds.Kinds(kube, served_kinds.AllowedKinds(()))
        self._kind: api_resources.Resource | None = None
        self._asked = 0.0
        self._background = coroutines.BackgroundWork("services of Knative")
        self._cache: cache.Cache[meta.JsonObject] = cache.Cache()
        self._followed: dict[str, reflector.Reflector[meta.JsonObject]] = {}
        self._changes: dict[objects.Key, asyncio.Event] = {}

    async def close(self) -> None:
        """Stop all reflectors."""
        await self._background.stop()

    async def url(self, namespace: str, name: str, waits: Waits) -> str:
        key = (namespace, name)
        while True:
            changed = self._changes.setdefault(key, asyncio.Event())
            service = self._cache.get(key)
            try:
                service = service or await self._missing(namespace, name)
                return ready_url(service, inside=self._inside)
            except NotReadyError as error:
                waits(_R.SERVICE_NOT_READY, f"Service {name}: {error}")
            except _UnavailableError as error:
                waits(_R.EXECUTOR_UNAVAILABLE, str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if service is None else None):
                    await changed.wait()

    async def _missing(self, namespace: str, name: str) -> meta.JsonObject:
        """Read a Service that is not in the cache yet from the API server, or raise an error that
        says why there is none.
        """
        now = asyncio.get_running_loop().time()
        if self._kind is not None and now - self._asked >= AGAIN_S:
            self._asked = now
            self._kinds.forget(
                self._kind
            )  # a watch does not always report that its kind was removed
        try:
            kind = await self._kinds.find(API_VERSION, KIND)
        except errors.KubeError as error:
            raise _UnavailableError(f"the API server is away: {error}") from error
        if isinstance(kind, served_kinds.Absent):
            raise _UnavailableError(kind.message)
        self._kind = kind
        followed = self._followed.get(namespace)
        if followed is None:
            scope = reflector.Scope(namespace=namespace)
            followed = self._followed[namespace] = reflector.Reflector(
                self.kube, kind, dict, self._cache, self._wake, scope=scope
            )
            self._background.start(f"reflector {kind.qualified}/{namespace}", followed.run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S):
                await followed.synced.wait()
        if followed.problem:
            raise _UnavailableError(f"Services of Knative cannot be read: {followed.problem}")
        found = self._cache.get((namespace, name))
        if found is None:
            raise NotReadyError(f"there is none of that name in namespace {namespace}")
        return found

    def _wake(self, key: objects.Key, old: object, new: object) -> None:
        changed = self._changes.pop(key, None)
        if changed is not None:
            changed.set()


class _UnavailableError(Exception):
    """Services cannot be read at the moment."""
