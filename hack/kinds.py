"""Generates the schemas of the built-in kinds that our server serves: `python -m hack.kinds`.

Starts a real API server, reads its OpenAPI v3, keeps the types that the kinds below need and writes
`src/kilnwork/controlplane/apiserver/types.json.gz`, which is checked in. Run it again when a kind
is added or when `hack/kube/go.mod` names a newer Kubernetes.
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.kube import cluster

TARGET = Path(__file__).parents[1] / "src/kilnwork/controlplane/apiserver/types.json.gz"

KINDS = {
    "/openapi/v3/api/v1": (
        "Binding",
        "ConfigMap",
        "Event",
        "Namespace",
        "Node",
        "PersistentVolumeClaim",
        "Pod",
        "Secret",
        "Service",
        "ServiceAccount",
    ),
    "/openapi/v3/apis/apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "/openapi/v3/apis/coordination.k8s.io/v1": ("Lease",),
    "/openapi/v3/apis/policy/v1": ("Eviction",),
    "/openapi/v3/apis/autoscaling/v1": ("Scale",),
    "/openapi/v3/apis/rbac.authorization.k8s.io/v1": (
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ),
}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_ALWAYS = (f"{_META}DeleteOptions", f"{_META}Patch", f"{_META}Status", f"{_META}ListMeta")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kinds-") as scratch:
        running = cluster.Cluster(cluster.Settings(directory=Path(scratch) / "k", controllers=()))
        try:
            running.start()
            found: dict[str, Any] = {}
            for path, kinds in KINDS.items():
                document = json.loads(running.kubectl("get", "--raw", path))
                found |= cut(document["components"]["schemas"], kinds)
        finally:
            running.remove()
    text = json.dumps(dict(sorted(found.items())), separators=(",", ":"))
    TARGET.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    sys.stdout.write(f"{TARGET.name}: {len(found)} types, {TARGET.stat().st_size} bytes\n")
    return 0


def cut(schemas: dict[str, Any], kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return the schemas of `kinds` and all that they refer to."""
    wanted = [n for n in schemas if n.rpartition(".")[2] in kinds and _is_kind(schemas[n])]
    wanted += [name for name in _ALWAYS if name in schemas]
    kept: dict[str, Any] = {}
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = _kinds_served(schemas[name], kinds)
            wanted += _references(schemas[name])
    return kept


def _is_kind(schema: dict[str, Any]) -> bool:
    return "x-kubernetes-group-version-kind" in schema


def _kinds_served(schema: dict[str, Any], kinds: tuple[str, ...]) -> dict[str, Any]:
    """Drop the list of groups of DeleteOptions and similar types, which have every group of the
    real server.
    """
    groups = schema.get("x-kubernetes-group-version-kind") or ()
    if len(groups) > 1 and not any(group["kind"] in kinds for group in groups):
        return {k: v for k, v in schema.items() if k != "x-kubernetes-group-version-kind"}
    return schema


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for below in value.values():
            yield from _references(below)
    elif isinstance(value, list):
        for below in value:
            yield from _references(below)


if __name__ == "__main__":
    sys.exit(main())
