"""The parts of built-in kinds that rules look at, as types: what a wrong type is measured against.

Used by admission before any rule runs, so that rules may rely on them. Everything is optional and
may be null, as in Kubernetes' JSON; unknown fields pass. Not the stored form: objects stay JSON.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import statuses

Texts = dict[str, str] | None
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Shape(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of all shapes."""


class OwnerReference(Shape, frozen=True):
    """metav1.OwnerReference."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Shape, frozen=True):
    """metav1.ObjectMeta, complete: a field that is not here does not exist."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    self_link: str | None = None
    resource_version: str | None = None
    generation: Int64 | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: Texts = None
    annotations: Texts = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None
    managed_fields: list[dict[str, Any]] | None = None


class FieldReference(Shape, frozen=True):
    """core/v1 ObjectFieldSelector."""

    field_path: str | None = None


class KeyReference(Shape, frozen=True):
    """core/v1 SecretKeySelector and ConfigMapKeySelector; in envFrom without a key."""

    name: str | None = None
    key: str | None = None
    optional: bool | None = None


class EnvSource(Shape, frozen=True):
    """core/v1 EnvVarSource."""

    field_ref: FieldReference | None = None
    resource_field_ref: dict[str, Any] | None = None
    secret_key_ref: KeyReference | None = None
    config_map_key_ref: KeyReference | None = None


class EnvVar(Shape, frozen=True):
    """core/v1 EnvVar."""

    name: str | None = None
    value: str | None = None
    value_from: EnvSource | None = None


class EnvFrom(Shape, frozen=True):
    """core/v1 EnvFromSource."""

    prefix: str | None = None
    secret_ref: KeyReference | None = None
    config_map_ref: KeyReference | None = None


class VolumeMount(Shape, frozen=True):
    """core/v1 VolumeMount."""

    name: str | None = None
    mount_path: str | None = None
    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None


class Resources(Shape, frozen=True):
    """core/v1 ResourceRequirements."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class Container(Shape, frozen=True):
    """core/v1 Container."""

    name: str | None = None
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[EnvVar] | None = None
    env_from: list[EnvFrom] | None = None
    volume_mounts: list[VolumeMount] | None = None
    resources: Resources | None = None
    ports: list[dict[str, Any]] | None = None


class PodSpec(Shape, frozen=True):
    """core/v1 PodSpec."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[dict[str, Any]] | None = None
    restart_policy: str | None = None
    service_account_name: str | None = None
    automount_service_account_token: bool | None = None
    node_name: str | None = None
    node_selector: Texts = None
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    tolerations: list[dict[str, Any]] | None = None


class PodStatus(Shape, frozen=True):
    """core/v1 PodStatus: a Pod whose status cannot be read is none to node and controllers."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[dict[str, Any]] | None = None
    container_statuses: list[dict[str, Any]] | None = None
    init_container_statuses: list[dict[str, Any]] | None = None


class Pod(Shape, frozen=True):
    """core/v1 Pod."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class PodTemplate(Shape, frozen=True):
    """core/v1 PodTemplateSpec."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None


class Secret(Shape, frozen=True):
    """core/v1 Secret."""

    metadata: Metadata | None = None
    data: dict[str, str | None] | None = None
    string_data: Texts = None
    type: str | None = None
    immutable: bool | None = None


class ConfigMap(Shape, frozen=True):
    """core/v1 ConfigMap."""

    metadata: Metadata | None = None
    data: Texts = None
    binary_data: Texts = None
    immutable: bool | None = None


class ServiceAccount(Shape, frozen=True):
    """core/v1 ServiceAccount."""

    metadata: Metadata | None = None
    automount_service_account_token: bool | None = None
    secrets: list[dict[str, Any]] | None = None


class PolicyRule(Shape, frozen=True):
    """rbac/v1 PolicyRule."""

    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    non_resource_urls: list[str] | None = msgspec.field(default=None, name="nonResourceURLs")


class Role(Shape, frozen=True):
    """rbac/v1 Role."""

    metadata: Metadata | None = None
    rules: list[PolicyRule] | None = None


class Reference(Shape, frozen=True):
    """rbac/v1 RoleRef and Subject."""

    api_group: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None


class RoleBinding(Shape, frozen=True):
    """rbac/v1 RoleBinding."""

    metadata: Metadata | None = None
    role_ref: Reference | None = None
    subjects: list[Reference] | None = None


class Other(Shape, frozen=True):
    """Any kind of which only the metadata is looked at."""

    metadata: Metadata | None = None
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class AnyJson(Shape, frozen=True):
    """A custom kind: its schema checks the rest."""

    metadata: Metadata | None = None


_SHAPES: dict[str, type[Shape]] = {
    resource.PODS.kind: Pod,
    resource.SECRETS.kind: Secret,
    resource.CONFIG_MAPS.kind: ConfigMap,
    resource.SERVICE_ACCOUNTS.kind: ServiceAccount,
    resource.ROLES.kind: Role,
    resource.ROLE_BINDINGS.kind: RoleBinding,
    **{kind.kind: AnyJson for kind in resource.OURS},
}


def of(kind: resource.Resource) -> type[Shape]:
    """The shape of a kind."""
    return _SHAPES.get(kind.kind, Other)


def check(kind: resource.Resource, obj: meta.JsonObject) -> None:
    """400 when a field that rules rely on has another type than in Kubernetes."""
    try:
        msgspec.convert(obj, of(kind))
    except msgspec.ValidationError as error:
        raise statuses.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from error
