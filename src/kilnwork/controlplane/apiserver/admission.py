"""What happens to an object between the request and the store: defaults, rules, refusals.

Used by create, replace and patch. Order as in Kubernetes: shape, unknown fields, namespace,
defaults, accounts, then every rule, so that one answer names all that is wrong. It reads through
`lookup`, writes nothing and may be called twice with the same result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import (
    authn,
    authz,
    builtin,
    causes,
    lookup,
    rules_data,
    rules_meta,
    rules_ours,
    rules_pods,
    rules_rbac,
    shapes,
    statuses,
    structural,
)

Operation = Literal["create", "update"]

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One object on its way in.

    `new` has its name and namespace, and on update what the server owns (uid, creationTimestamp)
    from `old`. `subresource` `status`: only shape and schema are judged. `field_validation`:
    Strict, Warn or Ignore.
    """

    operation: Operation
    kind: resource.Resource
    new: meta.JsonObject
    old: meta.JsonObject | None = None
    subresource: str = ""
    field_validation: str = "Warn"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The object as it may be stored, and texts for `Warning` headers."""

    obj: meta.JsonObject
    warnings: tuple[str, ...] = ()


async def admit(asked: Question, *, user: authn.User, reader: lookup.Lookup) -> Admitted:
    """Fill in and judge; raises StatusError when the object may not be stored.

    What was asked about is not changed.
    """
    kind = asked.kind
    shapes.check(kind, asked.new)
    obj, unknown = _known_fields(kind, asked.new)
    warnings = structural.unknown_fields(unknown, field_validation=asked.field_validation)
    if asked.subresource:
        _refuse_if(kind, obj, list(_status_causes(kind, obj)))
        return Admitted(obj, tuple(warnings))
    if asked.operation == "create":
        _admit_create(kind, obj, reader=reader)
    else:
        old = asked.old or {}
        _admit_update(kind, old, obj)
        warnings += rules_ours.warnings(kind, old, obj)
    _guard(kind, obj, user=user, reader=reader)
    return Admitted(obj, tuple(warnings))


def check_namespace(kind: resource.Resource, obj: meta.JsonObject, reader: lookup.Lookup) -> None:
    """404 when the namespace does not exist, 403 when it is going away: nothing new goes in."""
    if not kind.namespaced:
        return
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    home = reader.get(resource.NAMESPACES, None, namespace)
    if home is None:
        raise statuses.not_found(resource.NAMESPACES, namespace)
    if home["metadata"].get("deletionTimestamp"):
        error = statuses.refused(
            kind,
            metadata.get("name", ""),
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )
        error.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise error


def _admit_create(kind: resource.Resource, obj: meta.JsonObject, *, reader: lookup.Lookup) -> None:
    check_namespace(kind, obj, reader)
    _default(kind, obj)
    served = builtin.of(kind)
    if kind.kind == resource.PODS.kind:
        rules_pods.initial_status(obj)
        rules_pods.use_service_account(obj, reader)
    elif served.custom and served.status_subresource:
        obj.pop("status", None)
    _refuse_if(kind, obj, [*rules_meta.validate(kind, obj), *_create_causes(kind, obj)])


def _admit_update(kind: resource.Resource, old: meta.JsonObject, new: meta.JsonObject) -> None:
    _default(kind, new)
    found = [*rules_meta.validate_update(old, new), *_update_causes(kind, old, new)]
    _refuse_if(kind, new, found)


def _known_fields(
    kind: resource.Resource, given: meta.JsonObject
) -> tuple[meta.JsonObject, list[str]]:
    """A copy without unknown fields, and these; custom kinds also get the schema's defaults."""
    schema = builtin.of(kind).schema
    unknown: list[str] = []
    if schema is None:
        obj: meta.JsonObject = _without_nulls(given)
    else:
        obj, unknown = structural.prune_and_default(schema, given)
    metadata = dict(obj.get("metadata") or {})
    for field in sorted(metadata.keys() - shapes.METADATA_FIELDS):
        unknown.append(f"metadata.{field}")
        del metadata[field]
    obj["metadata"] = metadata
    return obj, unknown


def _without_nulls(value: Any) -> Any:
    """A copy in which null is absent, as built-in kinds have it: in Go both are nil."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _default(kind: resource.Resource, obj: meta.JsonObject) -> None:
    if kind.kind == resource.PODS.kind:
        rules_pods.default(obj)
    elif kind.kind == resource.SECRETS.kind:
        rules_data.default_secret(obj)
    elif kind.kind == resource.ROLE_BINDINGS.kind:
        rules_rbac.default_role_binding(obj)
    elif kind.kind == resource.NAMESPACES.kind:
        labels = obj["metadata"].get("labels") or {}
        obj["metadata"]["labels"] = {**labels, _NAMESPACE_LABEL: obj["metadata"].get("name", "")}
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        obj.setdefault("status", {}).setdefault("phase", "Active")


def _create_causes(kind: resource.Resource, obj: meta.JsonObject) -> Iterator[causes.Cause]:
    if builtin.of(kind).custom:
        yield from rules_ours.validate(kind, obj)
    elif kind.kind == resource.PODS.kind:
        yield from rules_pods.validate(obj)
    elif kind.kind == resource.SECRETS.kind:
        yield from rules_data.validate_secret(obj)
    elif kind.kind == resource.CONFIG_MAPS.kind:
        yield from rules_data.validate_config_map(obj)
    elif kind.kind == resource.ROLES.kind:
        yield from rules_rbac.validate_role(obj)
    elif kind.kind == resource.ROLE_BINDINGS.kind:
        yield from rules_rbac.validate_role_binding(obj)


def _update_causes(
    kind: resource.Resource, old: meta.JsonObject, new: meta.JsonObject
) -> Iterator[causes.Cause]:
    if kind.kind == resource.PODS.kind:
        yield from rules_pods.validate_update(old, new)
        return
    yield from _create_causes(kind, new)
    if builtin.of(kind).custom:
        yield from rules_ours.validate_update(kind, old, new)
    elif kind.kind == resource.SECRETS.kind:
        yield from rules_data.validate_secret_update(old, new)
    elif kind.kind == resource.CONFIG_MAPS.kind:
        yield from rules_data.validate_config_map_update(old, new)
    elif kind.kind == resource.ROLE_BINDINGS.kind:
        yield from rules_rbac.validate_role_binding_update(old, new)


def _status_causes(kind: resource.Resource, obj: meta.JsonObject) -> Iterator[causes.Cause]:
    schema = builtin.of(kind).schema
    if schema is not None:
        yield from structural.validate(schema, obj)


def _refuse_if(
    kind: resource.Resource,
    obj: meta.JsonObject,
    found: list[causes.Cause],
) -> None:
    if found:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
        raise statuses.invalid(kind, name, found)


def _guard(
    kind: resource.Resource,
    obj: meta.JsonObject,
    *,
    user: authn.User,
    reader: lookup.Lookup,
) -> None:
    if user.is_admin:
        return
    if kind.kind == resource.ROLES.kind:
        rules_rbac.guard_role(obj, user=user, authorizer=authz.Authorizer(reader))
    elif kind.kind == resource.ROLE_BINDINGS.kind:
        rules_rbac.guard_role_binding(obj, user=user, authorizer=authz.Authorizer(reader))
