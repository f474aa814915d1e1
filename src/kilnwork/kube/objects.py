"""Access to the metadata of any object, whether it is decoded JSON or one of our structs.

Used by the modules of `kube`, controllers and the local node, where they handle objects of any
kind.
"""

from typing import Any

from kilnwork.api import meta

Key = tuple[str, str]
"""A key: namespace and name. The namespace of a cluster-wide object is empty."""


def metadata(obj: Any) -> meta.ObjectMeta | dict[str, Any]:
    """Return the `metadata` of an object: a dict for decoded JSON, else a struct."""
    found: meta.ObjectMeta | dict[str, Any] = (
        obj.get("metadata") or {} if isinstance(obj, dict) else obj.metadata
    )
    return found


def key(obj: Any) -> Key:
    m = metadata(obj)
    if isinstance(m, dict):
        return m.get("namespace") or "", m.get("name") or ""
    return m.namespace, m.name


def uid(obj: Any) -> str:
    """Return `metadata.uid`, or an empty text."""
    m = metadata(obj)
    return (m.get("uid") or "") if isinstance(m, dict) else m.uid


def resource_version(obj: Any) -> str:
    """Return `metadata.resourceVersion`, or an empty text."""
    m = metadata(obj)
    return (m.get("resourceVersion") or "") if isinstance(m, dict) else m.resource_version


def age(obj: Any) -> tuple[str, str]:
    """Return a sort key of an object by age, oldest first.

    It consists of `metadata.creationTimestamp`, in whole seconds, and the name.
    """
    m = metadata(obj)
    created = m.get("creationTimestamp") if isinstance(m, dict) else m.creation_timestamp
    return created or "", key(obj)[1]


def owner_uids(obj: Any) -> tuple[str, ...]:
    """Return the uids of all owners of an object, whether they are its controller or not."""
    m = metadata(obj)
    if isinstance(m, dict):
        return tuple(o.get("uid") or "" for o in m.get("ownerReferences") or ())
    return tuple(o.uid for o in m.owner_references)
