"""The kinds that an API server serves, and the kinds among them that tasks may create.

Used by `executor` before it creates an object, by `follower` when the manager starts, by the
SyncSet controller, and by `http.knative_services`. Kinds come and go with their
CustomResourceDefinitions: a served kind is remembered until a request fails, a missing kind is
requested again after `AGAIN_S`, however many attempts wait for it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec

from kilnwork.api import api_resources, json_limits, kinds, object_task_manifests
from kilnwork.kit import clock
from kilnwork.kube import client, errors, object_decoding

AGAIN_S = 1.0
"""Minimum interval in seconds between two requests for a kind that is not served."""

EVERY_CUSTOM_KIND = "*"
_NEEDED = frozenset({"create", "delete", "get", "list", "patch", "watch"})


class AllowedKinds:
    """The kinds that tasks may create, as a list of patterns.

    `PLURAL.GROUP`: one kind; `*.GROUP`: all kinds of a group; `*`: all kinds except those of
    Kubernetes and kilnwork, which must be listed explicitly.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def allows(self, kind: api_resources.Resource) -> bool:
        """Return whether tasks may create objects of a kind."""
        if kind.qualified in self.names or f"*.{kind.group}" in self.names:
            return True
        return EVERY_CUSTOM_KIND in self.names and _is_custom(kind.group)

    def may_allow(self, group: str) -> bool:
        """Return whether the patterns allow any kind of an API group."""
        if EVERY_CUSTOM_KIND in self.names and _is_custom(group):
            return True
        return any(name.partition(".")[2] == group for name in self.names)


def _is_custom(group: str) -> bool:
    """Return whether an API group belongs neither to Kubernetes (no dot, or the ending `.k8s.io`)
    nor to kilnwork.
    """
    return "." in group and not group.endswith(".k8s.io") and group != kinds.GROUP


class Absent(msgspec.Struct, frozen=True):
    """A kind that the API server does not serve.

    `elsewhere`: the kind in another version of its group; objects may exist in it although they
    cannot be read in the version that created them.
    """

    message: str
    elsewhere: api_resources.Resource | None = None


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of metav1.APIResource that are used here."""

    name: str
    kind: str
    namespaced: bool = True
    verbs: tuple[str, ...] = ()
    singular_name: str = ""


class _Kinds(msgspec.Struct, frozen=True):
    resources: tuple[_Kind, ...] = ()


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...] = ()


class Kinds:
    """The kinds of one API server, which are requested only when needed."""

    def __init__(
        self, kube: client.Client, allowed: AllowedKinds, *, time: clock.Clock | None = None
    ) -> None:
        self.allowed = allowed
        self._client = kube
        self._clock = time or clock.SystemClock()
        self._found: dict[tuple[str, str], api_resources.Resource] = {}
        self._absent: dict[tuple[str, str], tuple[float, Absent]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def find(self, api_version: str, kind: str) -> api_resources.Resource | Absent:
        """Return the resource of a kind, or an `Absent` with the reason why there is none. Raises
        `KubeError`.
        """
        key = (api_version, kind)
        if not object_task_manifests.is_api_version(api_version):  # the text becomes part of a URL
            return Absent(f"{json_limits.show(api_version)} is no GROUP/VERSION")
        async with self._asking.setdefault(api_version, asyncio.Lock()):
            found = self._found.get(key)
            if found is not None:
                return found
            asked, absent = self._absent.get(key, (0.0, None))
            if absent is not None and self._clock.monotonic() - asked < AGAIN_S:
                return absent
            looked = await self._look(api_version, kind)
            if isinstance(looked, api_resources.Resource):
                self._found[key] = looked
                self._absent.pop(key, None)
            else:
                self._absent[key] = (self._clock.monotonic(), looked)
            return looked

    def forget(self, kind: api_resources.Resource) -> None:
        """Forget a kind that a request has found to be no longer served."""
        self._found.pop((kind.api_version, kind.kind), None)

    async def all_allowed(self) -> AsyncIterator[api_resources.Resource]:
        """Yield every served, allowed and namespaced kind, in the preferred version of its group.

        Raises `KubeError`.
        """
        if any("." not in name for name in self.allowed.names if name != EVERY_CUSTOM_KIND):
            for found in await self._of_version("v1"):
                if found.namespaced and self.allowed.allows(found):
                    yield found
        groups = object_decoding.whole((await self._client.raw("GET", "/apis")).body, _Groups)
        for group in groups.groups:
            if not group.versions or not self.allowed.may_allow(group.name):
                continue
            for found in await self._of_version(group.versions[0].group_version):
                if found.namespaced and self.allowed.allows(found):
                    yield found

    async def _look(self, api_version: str, kind: str) -> api_resources.Resource | Absent:
        for found in await self._of_version(api_version):
            if found.kind == kind:
                return found
        message = f"the API server has no kind {kind} in {api_version}: it is created when there is"
        others = await self._other_versions(api_version)
        for other in others:
            for found in await self._of_version(other):
                if found.kind == kind:
                    text = f"the API server has kind {kind} in {other}, and not in {api_version}"
                    return Absent(text, elsewhere=found)
        return Absent(message)

    async def _of_version(self, api_version: str) -> list[api_resources.Resource]:
        """Return the kinds of an API group version that have all verbs an executor needs,
        namespaced or not; none if the version is not served.
        """
        group, _, version = api_version.rpartition("/")
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            listed = object_decoding.whole((await self._client.raw("GET", root)).body, _Kinds)
        except errors.NotFound:
            return []
        return [
            api_resources.Resource(
                group=group,
                version=version,
                kind=one.kind,
                plural=one.name,
                singular=one.singular_name or one.kind.lower(),
                namespaced=one.namespaced,
            )
            for one in listed.resources
            if "/" not in one.name and set(one.verbs) >= _NEEDED
        ]

    async def _other_versions(self, api_version: str) -> list[str]:
        group = api_version.rpartition("/")[0]
        if not group:
            return []
        try:
            response = await self._client.raw("GET", f"/apis/{group}")
        except errors.NotFound:
            return []
        found = object_decoding.whole(response.body, _Group)
        return [one.group_version for one in found.versions if one.group_version != api_version]
