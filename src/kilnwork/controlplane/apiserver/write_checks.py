"""Rules of writes before and after admission, without I/O: a part of `object_writer`.

The rules say which fields a path may change, which writes are refused before admission, and when a
deleted object can be removed. They follow k8s.io/apiserver/pkg/registry/rest and the strategies of
k8s.io/kubernetes.
"""

from typing import Any

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import (
    builtin,
    causes,
    managed_fields,
    metadata,
    statuses,
    write_types,
)

MADE_BY_UPDATE = (
    api_resources.LEASES,
    api_resources.EVENTS,
    api_resources.ROLES,
    api_resources.ROLE_BINDINGS,
    api_resources.CLUSTER_ROLES,
    api_resources.CLUSTER_ROLE_BINDINGS,
)
"""Kinds whose objects an update may create (AllowCreateOnUpdate in
k8s.io/kubernetes/pkg/registry)."""


def manager(
    target: write_types.WriteTarget,
    options: write_types.WriteContext,
    subresource: str = "",
    *,
    operation: str = managed_fields.UPDATE,
) -> managed_fields.FieldManager:
    """Return the field manager of a write."""
    below = subresource if subresource in ("status", "scale", "ephemeralcontainers") else ""
    return managed_fields.FieldManager(options.manager, target.kind.api_version, below, operation)


def type_of(target: write_types.WriteTarget) -> meta.JsonObject:
    """Return apiVersion and kind, as a client writes them."""
    return {"apiVersion": target.kind.api_version, "kind": target.kind.kind}


def check_applied(target: write_types.WriteTarget, config: meta.JsonObject) -> None:
    """Raise 400 for an applied object of another type or name, or one with managedFields."""
    version, kind = config.get("apiVersion") or "", config.get("kind") or ""
    if (version, kind) != (target.kind.api_version, target.kind.kind):
        group, _, plain = str(version).rpartition("/")
        raise statuses.bad_request(f"invalid object type: {group}/{plain}, Kind={kind}")
    given = metadata.metadata_of(config)
    if given.get("managedFields"):
        raise statuses.bad_request("metadata.managedFields must be nil")
    check_names(config, target)


def name_missing(target: write_types.WriteTarget) -> statuses.StatusError:
    """Return a 400: the object has no name."""
    return statuses.bad_request(
        f"the name of the object ({target.name} based on URL) was undeterminable: name must be "
        "provided"
    )


def owned_part(
    target: write_types.WriteTarget, config: meta.JsonObject, subresource: str
) -> meta.JsonObject:
    """Return the part of an applied object that the written path owns.

    That is the status, everything but the status, or the list of ephemeral containers.
    """
    if subresource:
        given = metadata.metadata_of(config)
        named = {k: given[k] for k in ("name", "namespace", "resourceVersion") if given.get(k)}
        own = {"status": config["status"]} if "status" in config else {}
        if subresource == "ephemeralcontainers":
            spec = config.get("spec") or {}
            own = {"spec": {k: spec[k] for k in ("ephemeralContainers",) if k in spec}}
        return {**type_of(target), "metadata": named, **own}
    if target.served.status_subresource:
        return {k: v for k, v in config.items() if k != "status"}
    return config


def no_patch_object(
    target: write_types.WriteTarget, config: meta.JsonObject, why: Exception
) -> statuses.StatusError:
    """Return a 500 for an applied object that does not fit its type.

    It has no reason, like that of kube-apiserver.
    """
    given, kind = metadata.metadata_of(config), target.kind
    which = f"{given.get('namespace', '')}/{given.get('name', '')}; {kind.group}/{kind.version}"
    return statuses.plain_internal(
        f"failed to create typed patch object ({which}, Kind={kind.kind}): {why}"
    )


def immutable(target: write_types.WriteTarget, field: str, value: str) -> statuses.StatusError:
    """Return a 422 for an immutable field, with the same cause twice.

    In kube-apiserver two rules report it.
    """
    text = f"Invalid value: {value}: field is immutable"
    cause = statuses.Cause(f"metadata.{field}", "FieldValueInvalid", text)
    return statuses.invalid(target.kind, target.name, [cause, cause])


def go_time(text: str) -> str:
    """Return a timestamp as Go prints it."""
    return text.replace("T", " ").replace("Z", " +0000 UTC")


def wants_version(served: builtin.ServedResource) -> bool:
    """Return whether updates must contain a resourceVersion (AllowUnconditionalUpdate)."""
    return served.custom or served.resource == api_resources.LEASES


_OPEN_STATUS = (api_resources.PODS, api_resources.NODES, api_resources.NAMESPACES)
"""Kinds whose metadata can be changed through `status` too, according to their strategies in Go."""


def is_removable(kind: api_resources.Resource, obj: meta.JsonObject) -> bool:
    """Return whether a deleted object can be removed.

    It must have no finalizers and no grace period left.
    """
    if kind == api_resources.NAMESPACES and (obj.get("spec") or {}).get("finalizers"):
        return False
    stored_metadata = obj["metadata"]
    return (
        "deletionTimestamp" in stored_metadata
        and not stored_metadata.get("finalizers")
        and not stored_metadata.get("deletionGracePeriodSeconds")
    )


def is_counted(served: builtin.ServedResource) -> bool:
    """Return whether objects of the kind have a generation that is counted.

    These are custom objects, definitions, and Pods (as since Kubernetes 1.33).
    """
    counted = (api_resources.PODS, api_resources.CUSTOM_RESOURCE_DEFINITIONS)
    return served.custom or served.resource in counted


def check_names(obj: meta.JsonObject, target: write_types.WriteTarget) -> None:
    """Raise 400 when namespace or name differ from those of the path."""
    given = metadata.metadata_of(obj)
    namespace, name = given.get("namespace") or "", given.get("name") or ""
    if namespace and target.kind.namespaced and namespace != target.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if target.name and name and name != target.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )


def check_readable(given: meta.JsonObject) -> None:
    """Raise 500 for an invalid resourceVersion, as kube-apiserver does."""
    version = given.get("resourceVersion")
    if version and not version.isdecimal():
        raise statuses.plain_internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')


def check_preconditions(
    target: write_types.WriteTarget,
    wanted: meta.JsonObject,
    old: meta.JsonObject,
    *,
    patched: bool,
) -> None:
    """Raise 409 if uid or resourceVersion differ from those of the stored object.

    Raises 422 for a patch of the uid or a change of deletionTimestamp, 400 for a missing or
    different name or namespace, 500 for an unreadable resourceVersion.
    """
    if not metadata.metadata_of(wanted).get("name"):
        raise name_missing(target)
    check_names(wanted, target)
    given, stored = metadata.metadata_of(wanted), old["metadata"]
    uid = given.get("uid")
    if uid and uid != stored["uid"]:
        if patched:
            raise immutable(target, "uid", causes.quoted(uid))
        raise statuses.conflict(
            target.kind,
            target.name,
            f"StorageError: invalid object, Code: 4, Key: /registry/{target.kind.plural}/"
            f"{target.namespace}/{target.name}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            f"{stored['uid']}",
        )
    check_readable(given)
    version = given.get("resourceVersion")
    if version and version != stored["resourceVersion"]:
        raise statuses.conflict(target.kind, target.name)
    deleted = given.get("deletionTimestamp")
    if deleted and deleted != stored.get("deletionTimestamp"):
        raise immutable(target, "deletionTimestamp", go_time(deleted))


def assemble(
    kind: api_resources.Resource, meta_: dict[str, Any], obj: meta.JsonObject
) -> meta.JsonObject:
    """Return an object with its fields in the usual order."""
    first = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta_}
    return first | {k: v for k, v in obj.items() if k not in first}


def prepare_new(target: write_types.WriteTarget, new: meta.JsonObject) -> meta.JsonObject:
    """Return a new object with its initial status; a Node keeps the status that was sent.

    Kinds without a status subresource keep it too.
    """
    # A kubelet registers its Node with a status, and the real strategy keeps it.
    if target.kind == api_resources.NODES:
        return new
    if target.served.status_subresource:
        new.pop("status", None)
    if target.kind == api_resources.PODS:
        new["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if target.kind == api_resources.NAMESPACES:
        given = (new.get("spec") or {}).get("finalizers") or []
        # The namespace controller removes this finalizer when the namespace is empty.
        new["spec"] = {"finalizers": [*given, *{"kubernetes"}.difference(given)]}
        new["status"] = {"phase": "Active"}
    return new


def sent_names(kind: api_resources.Resource, sent: meta.JsonObject) -> frozenset[str]:
    """Return the fields of a Pod's spec that the client sent; empty for other kinds."""
    names = frozenset((sent.get("spec") or {}) if kind == api_resources.PODS else ())
    # Defaults copy the name to `serviceAccount`, so the client owns both fields.
    return names | {"serviceAccount"} if "serviceAccountName" in names else names


def filled_in(
    kind: api_resources.Resource, sent: frozenset[str], admitted: meta.JsonObject
) -> meta.JsonObject:
    """Return the fields of a new object that the server has set and no manager owns."""
    if kind == api_resources.NAMESPACES:
        return {part: admitted.get(part) or {} for part in ("spec", "status")}
    if kind != api_resources.PODS:
        return {}
    spec = admitted["spec"]
    added = {name: spec[name] for name in _BY_ADMISSION if name in spec and name not in sent}
    return {"spec": {"containers": [], **added}, "status": admitted.get("status") or {}}


_BY_ADMISSION = (
    *("serviceAccountName", "serviceAccount", "automountServiceAccountToken"),
    *("priority", "preemptionPolicy", "tolerations"),
)
"""Fields of a Pod's spec that admission sets, as the plugins ServiceAccount, Priority and
DefaultTolerationSeconds do."""


def prepare_update(
    target: write_types.WriteTarget,
    wanted: meta.JsonObject,
    old: meta.JsonObject,
    *,
    subresource: str,
) -> meta.JsonObject:
    """Return `old` with those fields of `wanted` that the path may change.

    Main path: everything, except the status if it is a subresource. `status`: only the status.
    `binding`: everything but the metadata. `ephemeralcontainers`: only that list of a Pod.
    `finalize`: the finalizers of a Namespace, which no other path changes.
    """
    if subresource == "binding":
        return wanted | {"metadata": old["metadata"]}
    if subresource == "ephemeralcontainers":
        more = (wanted.get("spec") or {}).get("ephemeralContainers")
        spec = {k: v for k, v in old["spec"].items() if k != "ephemeralContainers"}
        return old | {"spec": spec | ({"ephemeralContainers": more} if more else {})}
    if subresource == "status":
        new = dict(old)
        if target.kind in _OPEN_STATUS:
            new["metadata"] = metadata.for_update(metadata.metadata_of(wanted), old["metadata"])
            if "deletionTimestamp" in old["metadata"]:
                check_no_new_finalizers(target, new["metadata"], old["metadata"])
        new.pop("status", None)
        status = wanted.get("status")
        if target.kind == api_resources.PODS:
            status = _of_same_quality(target, status or {}, old.get("status") or {})
        return new | ({} if status is None else {"status": status})
    meta_ = metadata.for_update(metadata.metadata_of(wanted), old["metadata"])
    if "deletionTimestamp" in old["metadata"]:
        check_no_new_finalizers(target, meta_, old["metadata"])
    new = assemble(target.kind, meta_, wanted)
    if target.served.status_subresource:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if target.kind == api_resources.NAMESPACES:
        source = wanted if subresource == "finalize" else old
        finalizers = (source.get("spec") or {}).get("finalizers")
        new["spec"] = {"finalizers": finalizers} if finalizers else {}
    return new


def _of_same_quality(
    target: write_types.WriteTarget, new: meta.JsonObject, old: meta.JsonObject
) -> meta.JsonObject:
    """Return the status of a Pod with its QoS class, which may not change."""
    before = old.get("qosClass")
    given = new.get("qosClass") or before
    if before and given != before:
        text = f'Invalid value: "{given}": field is immutable'
        cause = statuses.Cause("status.qosClass", "FieldValueInvalid", text)
        raise statuses.invalid(target.kind, target.name, [cause])
    return {**new, "qosClass": given} if given else new


def check_no_new_finalizers(
    target: write_types.WriteTarget, new: dict[str, Any], old: dict[str, Any]
) -> None:
    """Raise 422 if finalizers are added to an object that is being deleted."""
    added = metadata.new_finalizers(new, old)
    if added:
        listed = ", ".join(f'"{f}"' for f in added)
        text = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}"
        )
        cause = statuses.Cause("metadata.finalizers", "FieldValueForbidden", text)
        raise statuses.invalid(target.kind, target.name, [cause])


def count_generation(
    target: write_types.WriteTarget, new: meta.JsonObject, old: meta.JsonObject
) -> None:
    """Increment the object generation if anything but metadata and status has changed."""
    if not is_counted(target.served):
        return
    # Without a status subresource, the status is a field like any other.
    apart = ("metadata", "status") if target.served.status_subresource else ("metadata",)
    before = {k: v for k, v in old.items() if k not in apart}
    after = {k: v for k, v in new.items() if k not in apart}
    generation = old["metadata"].get("generation", 1)
    new["metadata"]["generation"] = generation if before == after else generation + 1
