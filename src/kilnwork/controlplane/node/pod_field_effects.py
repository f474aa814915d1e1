"""Table of the effect of every Pod field on our nodes; see `api.field_support`.

Used by `container_plan`, which refuses Pods and names ignored fields, by `cluster`, which makes the
API server warn of these fields if it has such a node, by `cli.embedded_crds` for the Pod templates
of TaskClusters, and by `cli.field_effects_reference`, which writes the documentation. A test walks
the type core/v1 PodSpec and fails for a field without a row. For the effect of fields on a kubelet
see the documentation of Kubernetes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kilnwork.api import field_support, meta
from kilnwork.api.field_support import Effect, Finding, Row, Side
from kilnwork.kit import mount_path_resolution

_CONTAINER_LISTS = ("spec.containers[]", "spec.initContainers[]")
_EPHEMERAL = "spec.ephemeralContainers[]"
_RESOLVER = "names are resolved as on the machine"
_HOST_NAME = "the host is called as the machine, and HOSTNAME is the Pod's name"
_SHARED = "processes of the machine share it in any case"
_NOT_BOUND = "nothing bounds what a process uses, but workers keep their memory limit by themselves"
_NO_LIMITS = "only requests of containers count, nothing bounds a process"
_FIRST_FITS = "the scheduler of kiln up takes the first node that fits"
_OWNER = "files and processes belong to the user of the node"
_VOLUME = "nodes offer emptyDir, hostPath, secret, configMap, downwardAPI and projected"
_RULED_OUT = "processes are confined by nothing but their user"
_OWN_USER = "a container whose user is not that of the node waits: CreateContainerConfigError"
_DEVICES = "nodes offer no devices"


def _same(path: str, effect: Effect, reason: str = "", **more: Any) -> Row:
    return Row(path, effect, effect, reason, **more)


def _honoured(*paths: str, reason: str = "", whole: bool = False) -> list[Row]:
    return [_same(path, Effect.HONOURED, reason, whole=whole) for path in paths]


def _ignored(*paths: str, reason: str, unless: tuple[Any, ...] = (False, 0)) -> list[Row]:
    return [_same(p, Effect.IGNORED, reason, whole=True, unless=unless) for p in paths]


def _refused(*paths: str, reason: str, unless: tuple[Any, ...] = (False, 0)) -> list[Row]:
    return [_same(p, Effect.REFUSED, reason, whole=True, unless=unless) for p in paths]


def _scheduling(path: str, reason: str = _FIRST_FITS, *, unless: tuple[Any, ...] = (0,)) -> Row:
    """Return the row of a scheduling preference that the scheduler of `kiln up` ignores."""
    return Row(path, Effect.IGNORED, Effect.SCHEDULED, reason, whole=True, unless=unless)


_POD = [
    *_honoured(
        "spec.activeDeadlineSeconds",
        "spec.automountServiceAccountToken",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccount",
        "spec.serviceAccountName",
        "spec.terminationGracePeriodSeconds",
    ),
    *_honoured("spec.readinessGates", whole=True),
    *_honoured(
        "spec.hostIPC",
        "spec.hostNetwork",
        "spec.hostPID",
        "spec.shareProcessNamespace",
        reason=_SHARED,
    ),
    *(
        Row(path, Effect.HONOURED, Effect.SCHEDULED, whole=True)
        for path in (
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            "spec.nodeSelector",
            "spec.schedulingGates",
            "spec.tolerations",
        )
    ),
    Row("spec.overhead", Effect.HONOURED, Effect.SCHEDULED, "added to the requests", whole=True),
    _scheduling("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"),
    _scheduling("spec.affinity.podAffinity"),
    _scheduling("spec.affinity.podAntiAffinity"),
    _scheduling("spec.topologySpreadConstraints"),
    _scheduling("spec.priority", "Pods are taken as they come, and none makes room for another"),
    _scheduling(
        "spec.priorityClassName", "Pods are taken as they come, and there are no PriorityClasses"
    ),
    Row("spec.preemptionPolicy", Effect.DEFAULT, Effect.SCHEDULED, "no Pod makes room for another"),
    *_ignored("spec.dnsConfig", "spec.hostAliases", reason=_RESOLVER),
    *_ignored("spec.dnsPolicy", reason=_RESOLVER, unless=("ClusterFirst", "Default")),
    *_ignored("spec.hostname", "spec.setHostnameAsFQDN", "spec.subdomain", reason=_HOST_NAME),
    *_ignored("spec.hostUsers", reason="processes have no user namespace", unless=(True,)),
    *_ignored("spec.imagePullSecrets", reason="no image is pulled"),
    *_ignored("spec.resources", reason=_NO_LIMITS),
    _same(
        "spec.enableServiceLinks",
        Effect.DEFAULT,
        "there are no variables for Services",
        unless=(True, False),
    ),
    *_refused("spec.os", reason="nodes run Linux", unless=({"name": "linux"},)),
    *_refused("spec.resourceClaims", reason=_DEVICES),
    *_refused("spec.runtimeClassName", reason="processes run in no sandbox"),
]

_POD_SECURITY = [
    *_refused("spec.securityContext.sysctls", reason="sysctls are those of the machine"),
    *_ignored(
        "spec.securityContext.fsGroup",
        "spec.securityContext.fsGroupChangePolicy",
        "spec.securityContext.seLinuxChangePolicy",
        "spec.securityContext.supplementalGroups",
        reason=_OWNER,
    ),
    *_ignored("spec.securityContext.supplementalGroupsPolicy", reason=_OWNER, unless=("Merge",)),
]


def _security(at: str) -> list[Row]:
    """Return the rows of securityContext fields that Pods and containers have in common."""
    return [
        _same(f"{at}.runAsGroup", Effect.CHECKED, _OWN_USER.replace("user", "group", 1)),
        _same(f"{at}.runAsNonRoot", Effect.CHECKED, "a node that runs as root lets them wait"),
        _same(f"{at}.runAsUser", Effect.CHECKED, _OWN_USER),
        *_refused(f"{at}.appArmorProfile", reason=_RULED_OUT, unless=({"type": "Unconfined"},)),
        *_refused(f"{at}.seccompProfile.localhostProfile", reason=_RULED_OUT),
        *_ignored(
            f"{at}.seccompProfile.type", reason=_RULED_OUT, unless=("Unconfined", "Localhost")
        ),
        *_ignored(f"{at}.seLinuxOptions", reason=_RULED_OUT),
        *_ignored(f"{at}.windowsOptions", reason="nodes run Linux"),
    ]


def _container(at: str) -> list[Row]:
    security = f"{at}.securityContext"
    return [
        *_honoured(
            *(
                f"{at}.{field}"
                for field in (
                    "args",
                    "command",
                    "env",
                    "envFrom",
                    "name",
                    "stdin",
                    "stdinOnce",
                    "tty",
                    "workingDir",
                )
            ),
            whole=True,
        ),
        _same(
            f"{at}.image",
            Effect.DEFAULT,
            "a label, needed by Kubernetes: programs are those of the machine, and a container "
            "without command waits",
        ),
        _same(f"{at}.imagePullPolicy", Effect.DEFAULT, "no image is pulled"),
        *_hooks(f"{at}.lifecycle"),
        *(
            row
            for kind in ("liveness", "readiness", "startup")
            for row in _probe(f"{at}.{kind}Probe")
        ),
        *_ports(f"{at}.ports[]"),
        *_honoured(f"{at}.resources.requests", whole=True, reason="for scheduling"),
        *_ignored(f"{at}.resources.limits", reason=_NOT_BOUND),
        *_refused(f"{at}.resources.claims", reason=_DEVICES),
        _same(f"{at}.resizePolicy", Effect.DEFAULT, "no container is resized", whole=True),
        *_honoured(f"{at}.restartPolicy", reason="of init containers: Always makes a sidecar"),
        *_security(security),
        *_honoured(f"{security}.allowPrivilegeEscalation", reason="false: no_new_privs is set"),
        *_honoured(
            f"{security}.capabilities.drop", reason="taken from the bounding set", whole=True
        ),
        *_ignored(
            f"{security}.capabilities.add",
            f"{security}.privileged",
            reason="a process has what the user of the node has",
        ),
        *_ignored(f"{security}.procMount", reason=_RULED_OUT, unless=("Default",)),
        *_ignored(f"{security}.readOnlyRootFilesystem", reason="processes see the machine's files"),
        *_honoured(
            f"{at}.terminationMessagePath",
            reason=f"below the directory that ${mount_path_resolution.VARIABLE} names",
        ),
        *_honoured(f"{at}.terminationMessagePolicy"),
        *_refused(f"{at}.volumeDevices", reason=_DEVICES),
        *_mounts(f"{at}.volumeMounts[]"),
    ]


def _hooks(at: str) -> list[Row]:
    both = (f"{at}.postStart", f"{at}.preStop")
    return [
        *(
            row
            for hook in both
            for row in (
                *_honoured(f"{hook}.exec", f"{hook}.httpGet", f"{hook}.sleep", whole=True),
                *_refused(
                    f"{hook}.tcpSocket", reason="hooks of this type are no part of Kubernetes"
                ),
            )
        ),
        *_ignored(
            f"{at}.stopSignal", reason="containers are ended by SIGTERM", unless=("SIGTERM",)
        ),
    ]


def _probe(at: str) -> list[Row]:
    fields = (
        "exec",
        "failureThreshold",
        "httpGet",
        "initialDelaySeconds",
        "periodSeconds",
        "successThreshold",
        "tcpSocket",
        "terminationGracePeriodSeconds",
        "timeoutSeconds",
    )
    return [
        *_honoured(*(f"{at}.{field}" for field in fields), whole=True),
        *_refused(f"{at}.grpc", reason="nodes offer exec, httpGet and tcpSocket"),
    ]


def _ports(at: str) -> list[Row]:
    return [
        *_honoured(f"{at}.containerPort", f"{at}.name", reason="probes and hooks find it by name"),
        _same(f"{at}.protocol", Effect.DEFAULT, "nothing is mapped: a process listens as it likes"),
        *_ignored(
            f"{at}.hostIP", f"{at}.hostPort", reason="a process listens on the machine itself"
        ),
    ]


def _mounts(at: str) -> list[Row]:
    path = f"below the directory that ${mount_path_resolution.VARIABLE} names"
    return [
        *_honoured(f"{at}.name", f"{at}.subPath", f"{at}.subPathExpr"),
        *_honoured(f"{at}.mountPath", reason=path),
        *_ignored(f"{at}.mountPropagation", reason="nothing is mounted", unless=("None",)),
        *_ignored(f"{at}.readOnly", reason="who owns a file may write it"),
        *_ignored(
            f"{at}.recursiveReadOnly", reason="who owns a file may write it", unless=("Disabled",)
        ),
    ]


_NOT_OF_EPHEMERAL = (
    *("lifecycle", "livenessProbe", "ports", "readinessProbe", "resizePolicy", "resources"),
    *("restartPolicy", "startupProbe", "volumeMounts[].subPath", "volumeMounts[].subPathExpr"),
)


def _ephemeral(at: str) -> list[Row]:
    """Return the rows of an ephemeral container.

    They are the rows of a container without the fields that Kubernetes forbids here.
    """
    refused = tuple(f"{at}.{field}" for field in _NOT_OF_EPHEMERAL)
    return [
        *(row for row in _container(at) if not row.path.startswith(refused)),
        *(
            _same(path, Effect.INVALID, "not of ephemeral containers", whole=True)
            for path in refused
        ),
        *_honoured(f"{at}.targetContainerName", reason=_SHARED),
    ]


_OFFERED = ("configMap", "downwardAPI", "hostPath", "secret")
_PROJECTED = ("configMap", "downwardAPI", "secret", "serviceAccountToken")
_NOT_OFFERED = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "ephemeral", "fc",
    "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "image", "iscsi", "nfs",
    "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO",
    "storageos", "vsphereVolume",
)  # fmt: skip

_VOLUMES = [
    *_honoured("spec.volumes[].name", "spec.volumes[].projected.defaultMode"),
    *_honoured(*(f"spec.volumes[].{kind}" for kind in _OFFERED), whole=True),
    *_honoured(*(f"spec.volumes[].projected.sources[].{k}" for k in _PROJECTED), whole=True),
    *_ignored("spec.volumes[].emptyDir.medium", reason="it is on the disk of the data directory"),
    *_ignored("spec.volumes[].emptyDir.sizeLimit", reason="nothing bounds it but the disk"),
    *_refused(
        *(f"spec.volumes[].{kind}" for kind in _NOT_OFFERED),
        "spec.volumes[].projected.sources[].clusterTrustBundle",
        reason=_VOLUME,
    ),
]

ROWS: Sequence[Row] = (
    *_POD,
    *_POD_SECURITY,
    *_security("spec.securityContext"),
    *(row for at in _CONTAINER_LISTS for row in _container(at)),
    *_ephemeral(_EPHEMERAL),
    *_VOLUMES,
)

TABLE = field_support.table(ROWS)

_NODES_OWN = frozenset({"configMap", "downwardAPI", "projected", "secret"})
"""Volumes whose files the node itself writes and refreshes, so `readOnly` needs no warning."""


MEMORY_LIMIT = "KILN_MEMORY_LIMIT"
"""Environment variable that makes a worker observe the memory limit of its container itself."""


def warnings(new: meta.JsonObject, old: meta.JsonObject | None) -> Iterator[str]:
    """Yield a warning for each field of a Pod that has no effect on our nodes.

    For an update, these are the fields that it changes. No Pod is refused because of them, since it
    may be meant for another node. kube-apiserver has no such warnings; there the nodes report
    the fields in conditions.
    """
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    if spec == before:
        return
    yield from field_support.new_sentences(
        lambda pod: findings(_lasting(pod), Side.EMBEDDED), new, old
    )
    old_names = {container.get("name") for container in before.get("ephemeralContainers") or ()}
    for position, container in enumerate(spec.get("ephemeralContainers") or ()):
        if container.get("name") not in old_names:
            found = ephemeral_findings(container, position, spec.get("volumes"), Side.EMBEDDED)
            yield from map(field_support.describe_finding, found)


def _lasting(pod: meta.JsonObject) -> Any:
    """Return the spec without ephemeral containers, which never change and may be hundreds."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return spec
    return {name: value for name, value in spec.items() if name != "ephemeralContainers"}


def ephemeral_findings(
    container: dict[str, Any], position: int, volumes: Any, side: Side
) -> Iterator[Finding]:
    """Yield the ignored or refused fields of the ephemeral container at `position`.

    `volumes` are the volumes of its Pod.
    """
    at = "spec.ephemeralContainers"
    for found in findings({"ephemeralContainers": [container], "volumes": volumes}, side):
        if found.path.startswith(f"{at}[0]"):
            yield found._replace(path=f"{at}[{position}]{found.path.removeprefix(f'{at}[0]')}")


def findings(spec: Any, side: Side, *, at: str = "spec") -> Iterator[Finding]:
    """Yield the ignored or refused fields of a PodSpec.

    `at` is the path of the spec in its object. Yields nothing for a spec of the wrong type, which
    other code reports.
    """
    if not isinstance(spec, dict):
        return
    written = {
        volume.get("name")
        for volume in spec.get("volumes") or ()
        if isinstance(volume, dict) and _NODES_OWN & {k for k, v in volume.items() if v is not None}
    }
    for finding in field_support.findings(TABLE, spec, side, at="spec"):
        if (
            finding.path.endswith("].readOnly")
            and _holder(spec, finding.path).get("name") in written
        ):
            continue
        if finding.path.endswith(".resources.limits") and finding.value.keys() == {"memory"}:
            container = _holder(spec, finding.path.removesuffix(".limits"))
            if any(v.get("name") == MEMORY_LIMIT for v in container.get("env") or ()):
                continue
        yield finding._replace(path=f"{at}{finding.path.removeprefix('spec')}")


def _holder(spec: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the object that has the field `path`
    (`spec.containers[0].volumeMounts[1].readOnly`).
    """
    value: Any = spec
    for step in path.split(".")[1:-1]:
        name, _, position = step.rstrip("]").partition("[")
        value = value[name][int(position)]
    return dict(value)
