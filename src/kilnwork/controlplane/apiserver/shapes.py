"""A Pod template as types: what the template of a TaskCluster is measured against.

Used by admission, since the schema leaves the template open. Everything is optional and may be
null, as in Kubernetes' JSON; unknown fields pass. Types of whole kinds are in `fieldtypes`.
"""

from typing import Annotated, Any

import msgspec

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


class PodTemplate(Shape, frozen=True):
    """core/v1 PodTemplateSpec."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None
