"""Construction of the ephemeral container of an attempt, as JSON, and of the attempt's identity
from the container's name.

No I/O. Used by `executor`. The container mounts the volume through which the worker passes the
files of the attempt, and has the worker's security context; the Pod's service account token is
mounted by name, since Kubernetes does not mount it into ephemeral containers.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from kilnwork.api import attempts, env_sources, meta, pod
from kilnwork.executors import port
from kilnwork.kit import ids

EXECUTOR = "ephemeral"

VOLUME = "kilnwork"
VOLUME_DIRECTORY = "/var/run/kilnwork"
"""Mount path of the volume that the worker shares with the containers of its attempts."""

_WORKER = "worker"
"""Name of the worker's container; if no container has it, the first is the worker's."""

_ACCOUNT_VOLUME = "kube-api-access-"
"""Prefix of the name of the volume that admission adds (plugin/pkg/admission/serviceaccount)."""

_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"

_NAME = re.compile(r"t-([0-9a-f]{32})-([1-9][0-9]*)-([1-9][0-9]*)")


def container_name(ref: attempts.AttemptRef) -> str:
    """Return the name of an attempt's container, which consists of the whole task id, run and
    attempt; a DNS label.
    """
    return f"t-{ref.task.hex()}-{ref.run}-{ref.attempt}"


def ref_of(name: str) -> attempts.AttemptRef | None:
    """Return the attempt that a container's name refers to; None if the name is not one of an
    attempt.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    task, run, attempt = found.groups()
    return attempts.AttemptRef(ids.TaskId(bytes.fromhex(task)), int(run), int(attempt))


def is_ours(ref: attempts.AttemptRef, environment: Iterable[tuple[str, str]]) -> bool:
    """Return whether the environment variables of a container say that it was added for this
    attempt.
    """
    task = ids.task_text(ref.task)
    wanted = {
        ("KILN_TASK_ID", task),
        ("KILN_RUN", f"{ref.run}"),
        ("KILN_ATTEMPT", f"{ref.attempt}"),
    }
    return wanted <= set(environment)


def container(attempt: port.Attempt, place: port.WorkerPod, seen: pod.Pod) -> meta.JsonObject:
    """Return the manifest of the ephemeral container of an attempt in a worker's Pod."""
    worker = _worker(seen)
    spec = attempt.spec
    image = spec.image or worker.image
    own = {entry.name for entry in spec.env}
    given = [(name, value) for name, value in place.environment if name not in own]
    made: dict[str, Any] = {
        "name": container_name(attempt.ref),
        "image": image,
        "env": [
            *({"name": name, "value": _literal(value)} for name, value in given),
            *(env_sources.manifest(entry, _literal(entry.value)) for entry in spec.env),
        ],
        "volumeMounts": list(_mounts(seen)),
    }
    if spec.command:
        made["command"] = list(map(_literal, spec.command))
    if spec.args:
        made["args"] = list(map(_literal, spec.args))
    if image == worker.image:
        made |= _given(imagePullPolicy=worker.image_pull_policy, workingDir=worker.working_dir)
    return made | _given(securityContext=worker.security_context)


def _worker(seen: pod.Pod) -> pod.Container:
    containers = seen.spec.containers
    named = (container for container in containers if container.name == _WORKER)
    return next(named, containers[0] if containers else pod.Container(name=_WORKER))


def _mounts(seen: pod.Pod) -> Iterator[dict[str, Any]]:
    yield {"name": VOLUME, "mountPath": VOLUME_DIRECTORY}
    for volume in seen.spec.volumes:
        if volume.name.startswith(_ACCOUNT_VOLUME):
            yield {"name": volume.name, "mountPath": _ACCOUNT_DIRECTORY, "readOnly": True}


def _literal(text: str) -> str:
    """Escape a text so that Kubernetes does not expand variables in it.

    A Task must mean the same whatever runs it (kubernetes third_party/forked/golang/expansion).
    """
    return text.replace("$", "$$") if "$$" in text or "$(" in text else text


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
