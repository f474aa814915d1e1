"""The sidecar that implements the worker contract in a Pod, and the parts of the Pod's spec that it
needs.

No I/O. Used by `template` and `executor`. A native sidecar (KEP-753) of the worker's image starts
before the other containers and ends after them; it shares a volume with them, which contains the
files of docs/reference/worker-contract.md, and reports the result as its termination message. It
alone has a token, which Kubernetes binds to the Pod: the manifest contains no secret, and no other
container needs a service account.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kilnwork.api import attempts, manager_access, pod, reasons, substitution, termination_message
from kilnwork.executors import port
from kilnwork.kit import ids, mount_path_resolution

CONTAINER = "kilnwork"
DIRECTORY = "/var/run/kilnwork"
"""Mount path of the shared volume, the value of `KILN_DIR`."""

ANNOTATION = "kilnwork.dev/sidecar"
"""Annotation of a template; with the value `"false"` the Pod gets no sidecar, which saves a
container."""

_VOLUME = "kilnwork"
_TOKEN_VOLUME = "kilnwork-token"  # noqa: S105 - a name
_TOKEN_DIRECTORY = "/var/run/secrets/kilnwork.dev/attempt"  # noqa: S105 - a path
_TOKEN = "token"  # noqa: S105 - a key
_TOKEN_S = 3600
TOKEN_MOUNT = {"name": _TOKEN_VOLUME, "mountPath": _TOKEN_DIRECTORY, "readOnly": True}
_MESSAGE_FILE = "/dev/termination-log"
_GRACE_S = 30
"""Default grace period of a Pod in seconds (core/v1 DefaultTerminationGracePeriodSeconds)."""

_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
_LIMITS = {"cpu": "200m", "memory": "128Mi"}
"""Limits of the sidecar if all other containers have limits, so that the Pod keeps its QoS class
and fits a quota."""

WAIT = (
    'p="$KILN_DIR/.ready"; mkfifo "$p" 2>/dev/null || [ -p "$p" ] || exit 1; exec 3<>"$p"; '
    '[ -S "$KILN_SOCKET" ] || read -r _ <&3'
)
"""Shell command of the hook `postStart`, after whose end a kubelet starts the next container. The
sidecar writes to the pipe when its socket exists, and exits if that takes a minute; a startup probe
would check only once a second. Opening the pipe for both directions does not wait for a writer
(fifo(7)), so the hook checks for the socket after it has opened the pipe: it misses no write of the
sidecar."""


class SidecarOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The manager's settings for the sidecar.

    `channel`, `ca`: as for worker Pods; here the PEM is in the environment, since it is not secret.
    `blobs`: directory of the manager's blobs, None if the sidecar transfers them by HTTP.
    """

    image: str
    command: tuple[str, ...]
    channel: str
    ca: bytes | None = None
    blobs: str | None = None


def is_wanted(attempt: port.Attempt) -> bool:
    """Return whether the Pod gets a sidecar: a call needs none, and a template may disable it."""
    template = attempt.spec.pod
    if attempt.spec.call is not None:
        return False
    annotations = {} if template is None else template.metadata.get("annotations") or {}
    return annotations.get(ANNOTATION) != "false"


def add(spec: dict[str, Any], attempt: port.Attempt, settings: SidecarOptions) -> None:
    """Add the sidecar, with its volumes, mounts and variables, to the spec of a Pod, in place.

    Raises `substitution.InvalidTemplate` if the spec uses names that the sidecar needs itself.
    """
    _check_names(spec)
    groups = [spec.get("initContainers") or [], spec.get("containers") or []]
    mine = [container for group in groups for container in group]
    mount = {"name": _VOLUME, "mountPath": DIRECTORY}
    variables = _variables(has_input=attempt.inputs is not None)
    for container in mine:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
        own = {entry.get("name") for entry in container.get("env") or ()}
        ours = [entry for entry in variables if entry["name"] not in own]
        container["env"] = [*ours, *(container.get("env") or ())]
    added = _container(spec, attempt, settings, beside=mine)
    spec["initContainers"] = [added, *groups[0]]
    shared = {"name": _VOLUME, "emptyDir": {}}
    spec["volumes"] = [*(spec.get("volumes") or ()), shared, token_volume()]


def result(seen: pod.Pod) -> attempts.Payload | None:
    """Return the result that the sidecar of a succeeded Pod has reported; None without a sidecar or
    a result.

    Raises `port.ResultError`.
    """
    status = next((s for s in seen.status.init_container_statuses if s.name == CONTAINER), None)
    if status is None:
        return None
    ended = status.state.terminated
    if ended is None or not ended.message:
        how = "" if ended is None else f": it ended with exit code {ended.exit_code}"
        text = f"the sidecar of Pod {seen.metadata.name} has left no word{how}"
        raise port.ResultError(reasons.Reason.RESULT_LOST, text, is_loss=True)
    try:
        output = termination_message.decode(ended.message)
        payload = output.payload
    except ValueError as error:
        text = f"the sidecar of Pod {seen.metadata.name} has left no result: {error}"
        raise port.ResultError(reasons.Reason.RESULT_LOST, text, is_loss=True) from error
    if output.reason:
        raise port.ResultError(output.reason, output.message)
    if output.message:
        raise port.ResultError(reasons.Reason.RESULT_LOST, output.message, is_loss=True)
    return payload


def _check_names(spec: Mapping[str, Any]) -> None:
    remedy = (
        "is a name that the sidecar needs; choose another, or set the annotation "
        f'{ANNOTATION}: "false" in spec.pod.metadata'
    )
    found = [
        (f"spec.pod.spec.{group}[{index}].name", f"{entry['name']} {remedy}")
        for group in ("initContainers", "containers", "volumes")
        for index, entry in enumerate(spec.get(group) or ())
        if entry.get("name") in ((_VOLUME, _TOKEN_VOLUME) if group == "volumes" else (CONTAINER,))
    ]
    if found:
        raise substitution.InvalidTemplate(found)


def _variables(*, has_input: bool) -> list[dict[str, str]]:
    """Return the environment variables that every container of the Pod gets.

    All paths refer to the first variable, which is empty unless the node sets it, as a node does
    where mounts are not at their paths.
    """
    at = f"$({mount_path_resolution.VARIABLE}){DIRECTORY}"
    variables = {
        mount_path_resolution.VARIABLE: "",
        "KILN_DIR": at,
        "KILN_OUTPUT": f"{at}/output",
        "KILN_SOCKET": f"{at}/socket",
        **({"KILN_INPUT": f"{at}/input"} if has_input else {}),
    }
    return [{"name": name, "value": value} for name, value in variables.items()]


def _container(
    spec: Mapping[str, Any],
    attempt: port.Attempt,
    settings: SidecarOptions,
    *,
    beside: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    grace_s = spec.get("terminationGracePeriodSeconds")
    variables = {
        "KILN_CONTRACT_DIR": DIRECTORY,
        "KILN_MESSAGE_FILE": _MESSAGE_FILE,
        "KILN_CLUSTER": attempt.spec.cluster_name,
        "KILN_OUTPUT_TYPE": attempt.spec.output_type,
        "KILN_HAS_INPUT": str(attempt.inputs is not None).lower(),
        "KILN_GRACE_SECONDS": str(_GRACE_S if grace_s is None else grace_s),
        "KILN_MESSAGE_BYTES": str(termination_message.message_bytes(len(beside) + 1)),
    }
    given = [{"name": key, "value": value} for key, value in variables.items()]
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": list(settings.command),
        "restartPolicy": "Always",
        "env": [*_variables(has_input=False), *given, *access(attempt, settings)],
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", WAIT]}}},
        "resources": _resources(beside),
        "securityContext": _security(beside),
        "volumeMounts": [{"name": _VOLUME, "mountPath": DIRECTORY}, TOKEN_MOUNT],
    }


def access(attempt: port.Attempt, settings: SidecarOptions) -> list[dict[str, Any]]:
    """Return the environment variables with which a container that mounts the token connects to the
    manager.
    """
    variables = {
        "KILN_TOKEN_FILE": f"{_TOKEN_DIRECTORY}/{_TOKEN}",
        "KILN_TASK_ID": ids.task_text(attempt.ref.task),
        "KILN_RUN": str(attempt.ref.run),
        "KILN_ATTEMPT": str(attempt.ref.attempt),
        "KILN_NAMESPACE": attempt.namespace,
        "KILN_CHANNEL": settings.channel,
        **({} if settings.ca is None else {"KILN_CA": settings.ca.decode("ascii")}),
        **({} if settings.blobs is None else {"KILN_BLOBS": settings.blobs}),
    }
    name = {"name": "KILN_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    return [*({"name": key, "value": value} for key, value in variables.items()), name]


def _resources(beside: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    limits = [(container.get("resources") or {}).get("limits") or {} for container in beside]
    shared = {
        name: value for name, value in _LIMITS.items() if limits and all(name in x for x in limits)
    }
    return {"requests": {**_REQUESTS, **shared}, **({"limits": shared} if shared else {})}


def _security(beside: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the security context of the sidecar, as the Pod Security Standard `restricted`
    requires it.

    The sidecar needs no privilege; all other settings are those that the other containers share, so
    that it is admitted where they are, and may read what they write.
    """
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    given = [container.get("securityContext") or {} for container in beside]
    for field in ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile"):
        values = [one.get(field) for one in given]
        if values and values[0] is not None and all(value == values[0] for value in values):
            context[field] = values[0]
    return context


def token_volume() -> dict[str, Any]:
    """Return the volume with a token for the manager; Kubernetes binds the token to the Pod."""
    token = {
        "path": _TOKEN,
        "audience": manager_access.ATTEMPT_AUDIENCE,
        "expirationSeconds": _TOKEN_S,
    }
    return {"name": _TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}
