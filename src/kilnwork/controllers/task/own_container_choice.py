"""The use of a Task's image: the command runs in a Pod or container of its own, or the image is
ignored.

No I/O. Used by `plan` and `reconciler`, and by `assembly` for spawned tasks. A worker runs commands
in its own container; a command with another image needs a container of its own: an ephemeral
container if the TaskCluster says so, otherwise that of a Pod of its own. The TaskCluster may also
have the worker run all commands. On a local node every container sees the machine's files, and
images are labels.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from kilnwork.api import env_sources, meta, pod, task, task_cluster
from kilnwork.dispatch import model

IGNORED = "ImageIgnored"
"""Type, and reason, of the condition of a Task whose image has no effect."""

LOCAL_SCHEME = "kiln://"
"""Scheme of container ids on local nodes."""

_SCHEDULING = ("imagePullSecrets", "nodeSelector", "tolerations")
"""Fields of a TaskCluster's template that are copied to a task's Pod: where it may run, and with
which image secrets."""


class WorkerImage(msgspec.Struct, frozen=True):
    """The image of a TaskCluster's workers, and whether images are only labels there."""

    image: str
    are_local: bool


def worker_image(pods: Iterable[pod.Pod]) -> WorkerImage | None:
    """Return the image of a TaskCluster's workers, from their Pods; None before the first Pod has a
    container.
    """
    images, schemes = [], set()
    for seen in pods:
        ids = [status.container_id for status in seen.status.container_statuses]
        if any(ids) and not seen.terminating:
            schemes |= {found.partition("//")[0] + "//" for found in ids if found}
            images.append(_worker(seen.spec.containers))
    return WorkerImage(images[0], schemes == {LOCAL_SCHEME}) if images else None


def differs(spec: task.TaskSpec, known: WorkerImage) -> bool:
    """Return whether a command names another image than that of the workers."""
    return bool(spec.image) and spec.image != known.image


def needs_pod(
    spec: task.TaskSpec, cluster: task_cluster.TaskCluster, known: WorkerImage | None
) -> bool | None:
    """Return whether a task runs in a Pod of its own because of its image.

    None: not known yet, since no worker of the TaskCluster has started.
    """
    if not spec.image or spec.executor != task.WORKER:
        return False
    if cluster.spec.runtime is not task_cluster.Runtime.AUTO:
        return False
    if known is None:
        return None if cluster.spec.replicas else True
    return differs(spec, known) and not known.are_local


def with_pod(spec: task.TaskSpec, cluster: task_cluster.TaskCluster) -> task.TaskSpec:
    """Return the task's spec with a `spec.pod` whose container gets the command, variables and so
    on.
    """
    container: dict[str, Any] = {"name": "main", "image": spec.image}
    if spec.command:
        container["command"] = list(map(_literal, spec.command))
    if spec.args:
        container["args"] = list(map(_literal, spec.args))
    if spec.env:
        container["env"] = [env_sources.manifest(e, _literal(e.value)) for e in spec.env]
    account = cluster.spec.service_account_name
    template = (cluster.spec.template or {}).get("spec") or {}
    made = {
        **{field: template[field] for field in _SCHEDULING if template.get(field)},
        "containers": [container],
        "enableServiceLinks": False,
        "automountServiceAccountToken": account is not None,
        **({} if account is None else {"serviceAccountName": account}),
    }
    return msgspec.structs.replace(
        spec, pod=task.PodTemplate(spec=made), image="", command=(), args=(), env=()
    )


def use_for_spawned(
    spec: task.TaskSpec, cluster: task_cluster.TaskCluster | None, known: WorkerImage | None
) -> model.ImageUse:
    """Return how the image of a spawned command is used: ignored, or run in a separate Pod or
    container; a refusal if there is no TaskCluster.

    A spawned task has no object that could wait: if no worker is known, it gets a Pod.
    """
    if cluster is None:
        message = f"spec.image: there is no TaskCluster {spec.cluster_name} for it to run on"
        return model.ImageUse(spec, refusal=message)
    if needs_pod(spec, cluster, known) is not False:
        return model.ImageUse(with_pod(spec, cluster))
    return model.ImageUse(spec, warning=_no_effect(spec, cluster, known))


def ignored_condition(
    seen: task.Task, cluster: task_cluster.TaskCluster | None, known: WorkerImage | None
) -> meta.Condition | None:
    """Return the condition `ImageIgnored` of a task whose image has no effect, or None if it has an
    effect.
    """
    why = "" if cluster is None else _no_effect(seen.spec, cluster, known)
    if not why:
        return None
    return meta.Condition(
        type=IGNORED,
        status="True",
        reason=IGNORED,
        message=why,
        observed_generation=seen.metadata.generation,
    )


def _no_effect(
    spec: task.TaskSpec, cluster: task_cluster.TaskCluster, known: WorkerImage | None
) -> str:
    """Return why a command runs on the worker although it names another image; "" if it does not
    run there.
    """
    if known is None or not differs(spec, known):
        return ""
    field, named = f"spec.image {spec.image}", f"TaskCluster {cluster.metadata.name}"
    if known.are_local:
        return (
            f"{field}: images are labels on the nodes of the workers of {named}, where programs "
            "come from the machine"
        )
    if cluster.spec.runtime is task_cluster.Runtime.AGENT:
        return f"{field}: {named} says runtime: Agent, so that its workers run it in their image"
    return ""


def _worker(containers: tuple[pod.Container, ...]) -> str:
    named = (container for container in containers if container.name == "worker")
    found = next(named, containers[0] if containers else None)
    return "" if found is None else found.image


def _literal(text: str) -> str:
    """Escape a text so that neither Kubernetes nor the Pod's template expands it, as on a
    worker."""
    return text.replace("$", "$$") if any(two in text for two in ("$$", "$(", "${")) else text
