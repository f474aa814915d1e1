"""Admission: defaulting and validation of an object between the request and the store.

Used by `object_writer` for every write that is not a deletion, and by `child_object_check`. Order
as in Kubernetes: shape, unknown fields, namespace, defaults, service accounts, then every rule, so
that one response names all problems. It reads through `lookup_interface`, writes nothing, and gives
the same result when called twice.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import installed_kind_types
from kilnwork.controlplane.apiserver import (
    authn,
    authz,
    builtin,
    causes,
    definitions,
    lookup_interface,
    rules_cel,
    rules_custom,
    rules_data,
    rules_definitions,
    rules_ephemeral,
    rules_meta,
    rules_pods,
    rules_rbac,
    schema_validation,
    statuses,
    typed_decoding,
)

Operation = Literal["create", "update"]

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request to admit one object, with the operation that it is for."""

    operation: Operation
    kind: api_resources.Resource
    new: meta.JsonObject
    """The object with its name and namespace and, on update, the fields of `old` that only the
    server sets (uid, creationTimestamp)."""
    old: meta.JsonObject | None = None
    subresource: str = ""
    """With `status`, only the rules for the status, the schema and its CEL rules are checked; with
    `ephemeralcontainers`, only that list."""
    field_validation: str = "Warn"
    """Strict, Warn or Ignore."""
    known: bool = False
    """Whether `new` has been decoded by `read` already."""
    served: builtin.ServedResource | None = None
    """How the kind is served, if it is not a built-in one."""
    extended: bool = False
    """Whether `new` is the definition of a kind with registered rules."""
    pod_warnings: installed_kind_types.Warn = installed_kind_types.no_warnings
    """Returns the warnings of this server's nodes about a Pod."""

    @property
    def served_resource(self) -> builtin.ServedResource:
        """Return how the object's kind is served."""
        return self.served or builtin.served_resource(self.kind)


class AdmissionResult(msgspec.Struct, frozen=True):
    """Result of admission: the object as it may be stored, and texts for `Warning` headers."""

    obj: meta.JsonObject
    warnings: tuple[str, ...] = ()


def read(
    served: builtin.ServedResource,
    given: meta.JsonObject,
    *,
    known: meta.JsonObject | None = None,
    field_validation: str = "Warn",
    oddities: Sequence[str] = (),
) -> AdmissionResult:
    """Decode `given` as an object of its kind, with warnings for dropped fields.

    `oddities` are messages about the body itself, such as duplicate fields; they become warnings
    too. For `known` see `typed_decoding.read`. Raises 400 for a field of the wrong type and, with
    `field_validation` Strict, for dropped fields and for `oddities`.
    """
    try:
        typed_decoding.check_kind(served, given)
        obj, unknown = typed_decoding.read(served, given, known=known)
        warnings = schema_validation.unknown_fields(
            unknown, field_validation=field_validation, oddities=oddities
        )
    except (typed_decoding.Unreadable, schema_validation.StrictError) as error:
        raise typed_decoding.cannot_be_handled(served.resource, given, error) from error
    return AdmissionResult(obj, tuple(warnings))


async def admit(
    asked: AdmissionRequest, *, user: authn.User, reader: lookup_interface.Lookup
) -> AdmissionResult:
    """Fill in the defaults of an object and validate it.

    Raises StatusError when the object may not be stored. Objects that were decoded before (`known`)
    are changed in place.
    """
    served, kind = asked.served_resource, asked.kind
    obj, warnings = asked.new, list[str]()
    if not asked.known:
        known = read(served, obj, field_validation=asked.field_validation)
        obj, warnings = known.obj, list(known.warnings)
    obj["metadata"] = dict(obj.get("metadata") or {})
    # Only this list is written, so that only its new containers are filled in and validated.
    if asked.subresource == "ephemeralcontainers":
        before = asked.old or {}
        rules_ephemeral.default(obj, before)
        _refuse_if(kind, obj, list(rules_ephemeral.validate(before, obj)))
        return AdmissionResult(obj, (*warnings, *asked.pod_warnings(obj, asked.old)))
    # A status must stay writable when the rules of the spec have become stricter.
    if asked.subresource:
        _refuse_if(kind, obj, list(_status_causes(served, obj, asked.old)))
        _check_right(served, obj, user=user, reader=reader)
        return AdmissionResult(obj, tuple(warnings))
    if asked.operation == "create":
        _admit_create(served, obj, reader=reader)
        _check_right(served, obj, user=user, reader=reader)
    else:
        old = asked.old or {}
        _admit_update(served, old, obj)
    if kind == api_resources.CUSTOM_RESOURCE_DEFINITIONS:
        warnings += () if asked.extended else rules_definitions.warnings(obj)
    elif kind == api_resources.PODS:
        warnings += asked.pod_warnings(obj, asked.old)
    warnings += rules_custom.warnings(served, obj, old=asked.old)
    # Last: permissions are compared with the object as it will be stored.
    _guard(kind, obj, user=user, reader=reader)
    return AdmissionResult(obj, tuple(warnings))


def check_namespace(
    kind: api_resources.Resource, obj: meta.JsonObject, reader: lookup_interface.Lookup
) -> None:
    """Check that the namespace of an object accepts it.

    Raises 404 when the namespace does not exist, 403 when it is being terminated.
    """
    if not kind.namespaced:
        return
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    home = reader.get(api_resources.NAMESPACES, None, namespace)
    if home is None:
        raise statuses.not_found(api_resources.NAMESPACES, namespace)
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


def _admit_create(
    served: builtin.ServedResource, obj: meta.JsonObject, *, reader: lookup_interface.Lookup
) -> None:
    kind = served.resource
    check_namespace(kind, obj, reader)
    _default(kind, obj)
    if kind == api_resources.PODS:
        rules_pods.initial_status(obj)
        rules_pods.use_service_account(obj, reader)
        rules_pods.prefer(obj)
    elif served.custom and served.status_subresource:
        obj.pop("status", None)
    _refuse_if(kind, obj, [*rules_meta.validate(kind, obj), *_create_causes(served, obj)])


def _admit_update(
    served: builtin.ServedResource, old: meta.JsonObject, new: meta.JsonObject
) -> None:
    kind = served.resource
    _default(kind, new)
    if kind == api_resources.PODS:
        rules_pods.prefer(new, old=old)
    found = [*rules_meta.validate_update(old, new), *_update_causes(served, old, new)]
    _refuse_if(kind, new, found)


def _default(kind: api_resources.Resource, obj: meta.JsonObject) -> None:
    if kind == api_resources.PODS:
        rules_pods.default(obj)
    elif kind in (api_resources.ROLES, api_resources.CLUSTER_ROLES):
        # Go encodes a slice that was not set as null.
        obj["rules"] = obj.get("rules") or None
    elif kind == api_resources.LEASES:
        if obj.get("spec") is None:
            obj["spec"] = {}
    elif kind == api_resources.SECRETS:
        rules_data.default_secret(obj)
    elif kind in (api_resources.ROLE_BINDINGS, api_resources.CLUSTER_ROLE_BINDINGS):
        rules_rbac.default_role_binding(obj)
    elif kind == api_resources.CUSTOM_RESOURCE_DEFINITIONS:
        definitions.default(obj)
    elif kind == api_resources.NAMESPACES:
        labels = obj["metadata"].get("labels") or {}
        # On every write, so that selectors of namespaces can rely on it (KEP-2161).
        obj["metadata"]["labels"] = {**labels, _NAMESPACE_LABEL: obj["metadata"].get("name", "")}
        obj.setdefault("spec", {})
        obj.setdefault("status", {}).setdefault("phase", "Active")


def _create_causes(served: builtin.ServedResource, obj: meta.JsonObject) -> Iterator[causes.Cause]:
    kind = served.resource
    if served.custom:
        yield from rules_custom.validate(served, obj)
    elif kind == api_resources.PODS:
        yield from rules_pods.validate(obj)
    elif kind == api_resources.SECRETS:
        yield from rules_data.validate_secret(obj)
    elif kind == api_resources.CONFIG_MAPS:
        yield from rules_data.validate_config_map(obj)
    elif kind == api_resources.LEASES:
        yield from rules_data.validate_lease(obj)
    elif kind in (api_resources.ROLES, api_resources.CLUSTER_ROLES):
        yield from rules_rbac.validate_role(obj, cluster=not kind.namespaced)
    elif kind in (api_resources.ROLE_BINDINGS, api_resources.CLUSTER_ROLE_BINDINGS):
        yield from rules_rbac.validate_role_binding(obj, cluster=not kind.namespaced)
    elif kind == api_resources.CUSTOM_RESOURCE_DEFINITIONS:
        yield from rules_definitions.validate(obj)


def _update_causes(
    served: builtin.ServedResource, old: meta.JsonObject, new: meta.JsonObject
) -> Iterator[causes.Cause]:
    kind = served.resource
    if kind == api_resources.PODS:
        yield from rules_pods.validate_update(old, new)
        return
    if served.custom:
        yield from rules_custom.validate(served, new, old=old)
        return
    if kind == api_resources.SECRETS:
        yield from rules_data.validate_secret_update(old, new)
    elif kind == api_resources.CONFIG_MAPS:
        yield from rules_data.validate_config_map_update(old, new)
    yield from _create_causes(served, new)
    if kind in (api_resources.ROLE_BINDINGS, api_resources.CLUSTER_ROLE_BINDINGS):
        yield from rules_rbac.validate_role_binding_update(old, new)
    elif kind == api_resources.CUSTOM_RESOURCE_DEFINITIONS:
        yield from rules_definitions.validate_update(old, new)


def _status_causes(
    served: builtin.ServedResource, obj: meta.JsonObject, old: meta.JsonObject | None
) -> Iterator[causes.Cause]:
    found = rules_custom.validate_schema(served, obj, old=old)
    yield from found or rules_cel.validate(served, obj, old=old)
    if not found:
        yield from rules_custom.validate_status(served, obj, old=old or {})


def _refuse_if(
    kind: api_resources.Resource,
    obj: meta.JsonObject,
    found: list[causes.Cause],
) -> None:
    if found:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
        raise statuses.invalid(kind, name, found)


def _check_right(
    served: builtin.ServedResource,
    obj: meta.JsonObject,
    *,
    user: authn.User,
    reader: lookup_interface.Lookup,
) -> None:
    """Raise 403 if the user lacks the permission that is registered for the kind."""
    if served.extension is None or served.extension.right is None:
        return
    full, name = served.extension.right(obj)
    plural, _, below = full.partition("/")
    attributes = authz.Attributes(
        verb="use",
        api_group=served.resource.group,
        resource=plural,
        subresource=below,
        namespace=obj["metadata"].get("namespace", ""),
        name=name,
    )
    if not authz.Authorizer(reader).allowed(user, attributes).allowed:
        raise statuses.refused(
            served.resource, obj["metadata"].get("name", ""), authz.denial_message(user, attributes)
        )


def _guard(
    kind: api_resources.Resource,
    obj: meta.JsonObject,
    *,
    user: authn.User,
    reader: lookup_interface.Lookup,
) -> None:
    if user.is_admin:
        return
    if kind in (api_resources.ROLES, api_resources.CLUSTER_ROLES):
        rules_rbac.guard_role(obj, user=user, authorizer=authz.Authorizer(reader))
    elif kind in (api_resources.ROLE_BINDINGS, api_resources.CLUSTER_ROLE_BINDINGS):
        rules_rbac.guard_role_binding(obj, user=user, authorizer=authz.Authorizer(reader))
