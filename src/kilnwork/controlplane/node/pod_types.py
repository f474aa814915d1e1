"""The parts of a core/v1 Pod that the local node reads, as frozen structs.

Used by all modules of the node that handle Pods. The structs are never written back: the node
patches only the status. Values of unusual fields stay decoded JSON, so that the node can still say
why it cannot run a Pod. Fields that have no effect here (`pod_field_effects`) are read in order to
be reported.
"""

import itertools
from typing import Any

import msgspec

from kilnwork.api import meta


class _Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class KeyReference(_Struct, frozen=True):
    """SecretKeySelector, ConfigMapKeySelector of core/v1."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FieldReference(_Struct, frozen=True):
    """ObjectFieldSelector of core/v1."""

    field_path: str


class ResourceReference(_Struct, frozen=True):
    """ResourceFieldSelector of core/v1. The container is named in volumes only."""

    resource: str
    container_name: str = ""
    divisor: str = "0"


class EnvSource(_Struct, frozen=True):
    """EnvVarSource of core/v1."""

    field_ref: FieldReference | None = None
    resource_field_ref: ResourceReference | None = None
    secret_key_ref: KeyReference | None = None
    config_map_key_ref: KeyReference | None = None


class EnvVar(_Struct, frozen=True):
    """EnvVar of core/v1."""

    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class ObjectReference(_Struct, frozen=True):
    """SecretEnvSource, ConfigMapEnvSource of core/v1."""

    name: str = ""
    optional: bool | None = None


class EnvFrom(_Struct, frozen=True):
    """EnvFromSource of core/v1."""

    prefix: str = ""
    secret_ref: ObjectReference | None = None
    config_map_ref: ObjectReference | None = None


class VolumeMount(_Struct, frozen=True):
    """VolumeMount of core/v1."""

    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: Any = None
    mount_propagation: Any = None
    recursive_read_only: Any = None


class ExecAction(_Struct, frozen=True):
    """ExecAction of core/v1."""

    command: tuple[str, ...] | None = None


class HttpHeader(_Struct, frozen=True):
    """HTTPHeader of core/v1."""

    name: str
    value: str = ""


class HttpAction(_Struct, frozen=True):
    """HTTPGetAction of core/v1. `port` is a number, or the name of a port of the container."""

    port: int | str
    path: str | None = None
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] | None = None


class TcpAction(_Struct, frozen=True):
    """TCPSocketAction of core/v1."""

    port: int | str
    host: str = ""


class SleepAction(_Struct, frozen=True):
    """SleepAction of core/v1."""

    seconds: float = 0.0


class Handler(_Struct, frozen=True):
    """LifecycleHandler of core/v1."""

    exec: ExecAction | None = None
    http_get: HttpAction | None = None
    sleep: SleepAction | None = None
    tcp_socket: Any = None


class Lifecycle(_Struct, frozen=True):
    """Lifecycle of core/v1."""

    post_start: Handler | None = None
    pre_stop: Handler | None = None
    stop_signal: Any = None


_PROBE_DEFAULTS = {
    "timeout_seconds": 1,
    "period_seconds": 10,
    "success_threshold": 1,
    "failure_threshold": 3,
}
"""As set by SetDefaults_Probe of the API server."""


class Probe(_Struct, frozen=True):
    """Probe of core/v1. Times are in seconds.

    Defaults are those of the API server (`_PROBE_DEFAULTS`); 0 means the default.
    """

    exec: ExecAction | None = None
    http_get: HttpAction | None = None
    tcp_socket: TcpAction | None = None
    grpc: dict[str, Any] | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
    termination_grace_period_seconds: int | None = None

    def __post_init__(self) -> None:
        for name, default in _PROBE_DEFAULTS.items():
            if getattr(self, name) == 0:
                msgspec.structs.force_setattr(self, name, default)


class Port(_Struct, frozen=True):
    """ContainerPort of core/v1."""

    container_port: int
    name: str = ""
    host_port: Any = None
    host_ip: Any = msgspec.field(default=None, name="hostIP")


class Container(_Struct, frozen=True):
    """Container of core/v1.

    Only init containers have `restart_policy`: Always makes the container a sidecar.
    """

    name: str
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    working_dir: str = ""
    volume_mounts: tuple[VolumeMount, ...] | None = None
    resources: dict[str, Any] | None = None
    ports: tuple[Port, ...] | None = None
    lifecycle: Lifecycle | None = None
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    restart_policy: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    security_context: dict[str, Any] | None = None
    termination_message_path: Any = None
    termination_message_policy: str = "File"
    volume_devices: Any = None

    @property
    def sidecar(self) -> bool:
        """Return whether this is an init container that runs beside the others (KEP-753)."""
        return self.restart_policy == "Always"

    @property
    def limits(self) -> dict[str, str]:
        """Return `resources.limits` as quantities."""
        return {k: str(v) for k, v in ((self.resources or {}).get("limits") or {}).items()}

    @property
    def requests(self) -> dict[str, str]:
        """Return `resources.requests` as quantities."""
        return {k: str(v) for k, v in ((self.resources or {}).get("requests") or {}).items()}


class EphemeralContainer(Container, frozen=True):
    """EphemeralContainer of core/v1: added to a running Pod, started once, never restarted.

    `target_container_name` has no effect here: all processes see each other.
    """

    target_container_name: str = ""


class KeyToPath(_Struct, frozen=True):
    """KeyToPath of core/v1."""

    key: str
    path: str
    mode: int | None = None


class ObjectVolume(_Struct, frozen=True):
    """SecretVolumeSource or ConfigMapVolumeSource of core/v1.

    A Secret volume names its object in `secret_name`; a projected Secret and a ConfigMap use
    `name`.
    """

    secret_name: str = ""
    name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    default_mode: int | None = None
    optional: bool | None = None


class DownwardItem(_Struct, frozen=True):
    """DownwardAPIVolumeFile of core/v1."""

    path: str
    field_ref: FieldReference | None = None
    resource_field_ref: ResourceReference | None = None
    mode: int | None = None


class DownwardVolume(_Struct, frozen=True):
    """DownwardAPIVolumeSource, DownwardAPIProjection of core/v1."""

    items: tuple[DownwardItem, ...] | None = None


class TokenVolume(_Struct, frozen=True):
    """ServiceAccountTokenProjection of core/v1. If `expiration_seconds` is None, it is an hour."""

    path: str
    audience: str = ""
    expiration_seconds: int | None = None


class HostPath(_Struct, frozen=True):
    """HostPathVolumeSource of core/v1. An empty `type` means that nothing is checked."""

    path: str
    type: str | None = None


class PodSpec(_Struct, frozen=True):
    """PodSpec of core/v1. A volume is a JSON object with its `name` and its one source."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    ephemeral_containers: tuple[EphemeralContainer, ...] | None = None
    volumes: tuple[dict[str, Any], ...] | None = None
    node_name: str = ""
    restart_policy: str = "Always"
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    readiness_gates: tuple[dict[str, Any], ...] | None = None
    security_context: dict[str, Any] | None = None
    dns_config: Any = None
    dns_policy: Any = None
    host_aliases: Any = None
    host_users: Any = None
    hostname: Any = None
    image_pull_secrets: Any = None
    os: Any = None
    resource_claims: Any = None
    resources: Any = None
    runtime_class_name: Any = None
    set_hostname_as_fqdn: Any = msgspec.field(default=None, name="setHostnameAsFQDN")
    subdomain: Any = None


class Pod(_Struct, frozen=True):
    """Pod of core/v1. `status` is decoded JSON, since it is compared with the computed one."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def init_containers(self) -> tuple[Container, ...]:
        """Return the init containers, including sidecars."""
        return self.spec.init_containers or ()

    @property
    def ephemeral_containers(self) -> tuple[EphemeralContainer, ...]:
        """Return the containers that were added to the running Pod. There may be hundreds."""
        return self.spec.ephemeral_containers or ()

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Return every container except ephemeral ones, in the order in which they start."""
        return (*self.init_containers, *self.spec.containers)

    def container(self, name: str) -> Container | None:
        every = itertools.chain(self.all_containers, self.ephemeral_containers)
        return next((c for c in every if c.name == name), None)

    def path(self, container: Container) -> str:
        """Return the path of a container in the object, such as `spec.containers[0]`."""
        if isinstance(container, EphemeralContainer):
            return f"spec.ephemeralContainers[{self.ephemeral_containers.index(container)}]"
        if container in self.init_containers:
            return f"spec.initContainers[{self.init_containers.index(container)}]"
        return f"spec.containers[{self.spec.containers.index(container)}]"

    def shown(self, name: str) -> dict[str, Any]:
        """Return the entry of a container in the object's status, or {}."""
        fields = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        entries = (s for field in fields for s in self.status.get(field) or ())
        return next((s for s in entries if s.get("name") == name), {})

    def mounts(self, path: str) -> bool:
        """Return whether every container except ephemeral ones has its own mount at `path`."""
        return all(
            any(m.mount_path.rstrip("/") == path for m in c.volume_mounts or ())
            for c in self.all_containers
        )

    @property
    def phase(self) -> str:
        """Return `status.phase` as last read, or Pending if there is none."""
        return str(self.status.get("phase") or "Pending")

    @property
    def final(self) -> bool:
        """Return whether the Pod has Succeeded or Failed, which is final."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def grace_s(self) -> float:
        """Return the seconds that containers may take to end after SIGTERM."""
        # A DELETE may have shortened the period of the spec.
        asked = self.metadata.deletion_grace_period_seconds
        if asked is None:
            asked = self.spec.termination_grace_period_seconds
        # The default of the API server.
        return 30.0 if asked is None else float(asked)

    @property
    def uses_account(self) -> bool:
        """Return whether containers get the files of the Pod's service account."""
        account = self.spec.service_account_name
        return bool(account) and self.spec.automount_service_account_token is not False
