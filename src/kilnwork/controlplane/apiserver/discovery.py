"""Discovery: the served groups, versions and resources, and the version of the server.

Used by the HTTP app for `/api`, `/apis`, `/api/v1`, `/apis/GROUP[/VERSION]` and `/version`, which
kubectl requests first. Serves aggregated discovery (KEP-3352) to clients that accept it, so that
kubectl needs two requests instead of one per group.
"""

import platform
from collections.abc import Sequence

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import kubernetes_version
from kilnwork.controlplane.apiserver import builtin, definitions, reviews

Kinds = Sequence[builtin.ServedResource]

_REVIEWS = tuple(builtin.ServedResource(resource=kind, verbs=("create",)) for kind in reviews.KINDS)
_OTHER_PATHS = (
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)

_AGGREGATED = "APIGroupDiscoveryList"
_AGGREGATED_VERSIONS = ("v2", "v2beta1")


def aggregated_version(accept: str) -> str | None:
    """Return the version of aggregated discovery that the client prefers: `v2` or `v2beta1`.

    None if the client prefers discovery that is not aggregated.
    """
    for option in accept.split(","):
        parts = [part.strip() for part in option.split(";")]
        if f"as={_AGGREGATED}" in parts and "g=apidiscovery.k8s.io" in parts:
            wanted = next((p.removeprefix("v=") for p in parts if p.startswith("v=")), "")
            if wanted in _AGGREGATED_VERSIONS:
                return wanted
        # In the order of the header: what comes first is preferred.
        elif parts[0] in ("application/json", "*/*"):
            return None
    return None


def aggregated_media_type(version: str) -> str:
    """Return the Content-Type of an aggregated document, which clients compare."""
    return f"application/json;g=apidiscovery.k8s.io;v={version};as={_AGGREGATED}"


def document(
    path: str, *, accept: str, address: str = "", kinds: Kinds = builtin.BUILT_IN
) -> tuple[meta.JsonObject, str] | None:
    """Return the discovery document at a path with its media type, or None.

    `address` (`host:port`) is the server address that `/api` reports; `kinds` is everything served.
    """
    # Reviews are served, but never stored, so that no table of kinds has them.
    kinds = (*kinds, *_REVIEWS)
    parts = [part for part in path.split("/") if part]
    aggregated = aggregated_version(accept) if parts in (["api"], ["apis"]) else None
    if aggregated is not None:
        return _aggregated(parts[0], aggregated, kinds), aggregated_media_type(aggregated)
    found = _plain(parts, address, kinds)
    return None if found is None else (found, "application/json")


def version() -> meta.JsonObject:
    """Return the document at `/version`: the Kubernetes version and the implementation."""
    return {
        "major": kubernetes_version.MAJOR,
        "minor": kubernetes_version.MINOR,
        "gitVersion": kubernetes_version.GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{_machine()}",
    }


def _machine() -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    return names.get(platform.machine(), platform.machine())


def _plain(parts: Sequence[str], address: str, kinds: Kinds) -> meta.JsonObject | None:
    match parts:
        case []:
            return {"paths": _all_paths(kinds)}
        case ["api"]:
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [
                    {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
                ],
            }
        case ["apis"]:
            groups = [_group(group, kinds) for group in _groups(kinds) if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources("", "v1", kinds)
        case ["apis", group] if group in _groups(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)}
        case ["apis", group, version_] if version_ in _groups(kinds).get(group, ()):
            return _resources(group, version_, kinds)
    return None


def _groups(kinds: Kinds) -> dict[str, list[str]]:
    """Return the versions of each API group, the preferred one first. The core group is ""."""
    found: dict[str, set[str]] = {}
    for served in kinds:
        found.setdefault(served.resource.group, set()).add(served.resource.version)
    return {
        group: sorted(versions, key=definitions.priority, reverse=True)
        for group, versions in found.items()
    }


def _all_paths(kinds: Kinds) -> list[str]:
    """Return the paths that `/` lists."""
    groups = [
        path
        for group, versions in _groups(kinds).items()
        for path in (f"/apis/{group}", *(f"/apis/{group}/{version_}" for version_ in versions))
        if group
    ]
    return sorted([*_OTHER_PATHS, *groups])


def is_built_in(group: str, version_: str) -> bool:
    """Return whether a group and version exists without any CustomResourceDefinition."""
    return any(
        (s.resource.group, s.resource.version) == (group, version_)
        for s in (*builtin.BUILT_IN, *_REVIEWS)
    )


def _group(group: str, kinds: Kinds) -> meta.JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version_}", "version": version_}
        for version_ in _groups(kinds)[group]
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _of(group: str, version_: str, kinds: Kinds) -> list[builtin.ServedResource]:
    return [s for s in kinds if (s.resource.group, s.resource.version) == (group, version_)]


def _resources(group: str, version_: str, kinds: Kinds) -> meta.JsonObject:
    listed: list[meta.JsonObject] = []
    for served in _of(group, version_, kinds):
        listed.append(_resource(served))
        listed.extend(_subresource(served, sub) for sub in served.subresources)
    if is_built_in(group, version_):
        listed.sort(key=lambda entry: str(entry["name"]))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version_}" if group else version_,
        "resources": listed,
    }


def _resource(served: builtin.ServedResource) -> meta.JsonObject:
    what = served.resource
    entry: meta.JsonObject = {
        "name": what.plural,
        "singularName": what.singular,
        "namespaced": what.namespaced,
        "kind": what.kind,
        "verbs": list(served.discovered_verbs),
    }
    if what.short_names:
        entry["shortNames"] = list(what.short_names)
    if what.categories:
        entry["categories"] = list(what.categories)
    return entry


def _subresource(served: builtin.ServedResource, sub: builtin.Subresource) -> meta.JsonObject:
    entry: meta.JsonObject = {
        "name": f"{served.resource.plural}/{sub.name}",
        "singularName": "",
        "namespaced": served.resource.namespaced,
        "kind": sub.kind or served.resource.kind,
        "verbs": list(sub.verbs),
    }
    if sub.version:
        entry |= {"group": sub.group, "version": sub.version}
    return entry


def _aggregated(root: str, version_: str, kinds: Kinds) -> meta.JsonObject:
    groups = [g for g in _groups(kinds) if (g == "") == (root == "api")]
    return {
        "kind": _AGGREGATED,
        "apiVersion": f"apidiscovery.k8s.io/{version_}",
        "metadata": {},
        "items": [_aggregated_group(group, kinds) for group in groups],
    }


def _aggregated_group(group: str, kinds: Kinds) -> meta.JsonObject:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version_,
                "freshness": "Current",
                "resources": [_aggregated_resource(s) for s in _of(group, version_, kinds)],
            }
            for version_ in _groups(kinds)[group]
        ],
    }


def _aggregated_resource(served: builtin.ServedResource) -> meta.JsonObject:
    what = served.resource
    entry: meta.JsonObject = {
        "resource": what.plural,
        "responseKind": _kind(what.group, what.version, what.kind),
        "scope": "Namespaced" if what.namespaced else "Cluster",
        "singularResource": what.singular,
        "verbs": list(served.discovered_verbs),
    }
    if what.short_names:
        entry["shortNames"] = list(what.short_names)
    if what.categories:
        entry["categories"] = list(what.categories)
    if served.subresources:
        entry["subresources"] = [_aggregated_sub(what, sub) for sub in served.subresources]
    return entry


def _aggregated_sub(what: api_resources.Resource, sub: builtin.Subresource) -> meta.JsonObject:
    group, version_ = (sub.group, sub.version) if sub.version else (what.group, what.version)
    return {
        "subresource": sub.name,
        "responseKind": _kind(group, version_, sub.kind or what.kind),
        "verbs": list(sub.verbs),
    }


def _kind(group: str, version_: str, kind: str) -> meta.JsonObject:
    return {"group": group, "version": version_, "kind": kind}
