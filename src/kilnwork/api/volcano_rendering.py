"""A Job of Volcano (batch.volcano.sh/v1alpha1) for a gang: one object, one task for each group.

No I/O. Used by `kiln render --backend volcano`. Nothing of Volcano is imported. Input that Volcano
would refuse (webhook `jobs/validate`) is refused here; the tests check the result against
Volcano's own schema and rules. Each generation is a Job of its own, since the templates of a Job
are immutable: only its replicas and minimums may change.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from kilnwork.api import meta, names

API_VERSION = "batch.volcano.sh/v1alpha1"
KIND = "Job"
SCHEDULER = "volcano"
DEFAULT_QUEUE = "default"
LAST_INDEX = 999
"""Maximum index of a Pod: groups have at most 1,000 workers."""

MAX_RETRY = 1_000
"""Maximum number of restarts. Volcano counts restarts of single Pods for the whole Job, which fails
at this number; tasks are retried by our own flow, so this limit must never end a run."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """A group of workers."""

    name: str
    replicas: int
    min: int
    template: dict[str, Any]
    """PodTemplateSpec with requests."""
    fails: bool = False
    """Whether the Job is aborted when one of its Pods ends, instead of restarting the Pod."""


class Unrenderable(ValueError):
    """Volcano would refuse the Job; the message says why."""


def render(
    name: str,
    roles: Iterable[Role],
    *,
    namespace: str,
    labels: dict[str, str] | None = None,
    queue: str = DEFAULT_QUEUE,
) -> meta.JsonObject:
    """Return the Job. Raises Unrenderable."""
    listed = list(roles)
    for role in listed:
        pod = f"{name}-{role.name}-{LAST_INDEX}"
        if problem := names.label_problem(pod):
            raise Unrenderable(f"{pod} cannot be the name of a Pod: {problem}")
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {
            "schedulerName": SCHEDULER,
            "queue": queue,
            "minAvailable": sum(role.min for role in listed),
            "maxRetry": MAX_RETRY,
            # Gives each Pod its index (VC_TASK_INDEX). Not `svc`, whose network policy would block
            # other clients: workers connect to the manager by themselves.
            "plugins": {"env": []},
            "tasks": [_volcano_task(role) for role in listed],
        },
    }


def _volcano_task(role: Role) -> meta.JsonObject:
    # For Volcano an evicted Pod is lost, too, unless a policy names an action.
    action = "AbortJob" if role.fails else "RestartPod"
    return {
        "name": role.name,
        "replicas": role.replicas,
        "minAvailable": role.min,
        "maxRetry": MAX_RETRY,
        "policies": [{"events": ["PodFailed", "PodEvicted"], "action": action}],
        "template": {
            "metadata": role.template.get("metadata") or {},
            "spec": {**(role.template.get("spec") or {}), "schedulerName": SCHEDULER},
        },
    }
