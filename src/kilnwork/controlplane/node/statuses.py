"""Status of a Pod, computed from its object and the node's views of its containers.

Used by `pod_reports`, which writes a status that differs from the previous one. Does no I/O and
reads no clock. Formats and reasons are the kubelet's (core/v1 PodStatus; k8s.io/kubernetes
pkg/kubelet/kubelet_pods.go, getPhase, and pkg/kubelet/status/generate.go), so that `kubectl get
pods` shows what people expect.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kilnwork.api import field_support
from kilnwork.controlplane.node import container_plan, pod_decisions, pod_types
from kilnwork.controlplane.node import shim_container as containers
from kilnwork.kit import clock

_ENDED = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
FIELDS_IGNORED = "kilnwork.dev/FieldsIgnored"
"""Type of the condition that names the fields of a Pod that have no effect on this node."""

_OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", FIELDS_IGNORED)
_SHOWN_FIELDS = 20
"""Maximum number of fields that a condition names. Further fields are counted."""

EPHEMERAL = "ephemeralContainerStatuses"
_SHUT_DOWN = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
"""Reason and message of a kubelet (pkg/kubelet/nodeshutdown), so that readers attribute the end to
the node."""

UNSUPPORTED = "UnsupportedPod"
"""Reason of a Pod that this node can never run."""


class PodFacts(NamedTuple):
    """Facts from which the status of a Pod is computed, besides its containers."""

    address: str
    wall: float
    """The present time (wall clock, seconds)."""
    written: Mapping[str, Any] | None = None
    """The status that was written last, from which start and transition times are kept. None: use
    the object's status."""
    leaving: bool = False
    """Whether the node stops all containers because it shuts down."""


def refused(pod: pod_types.Pod, message: str) -> dict[str, Any]:
    """Return the status of a Pod that fails because this node can never run it."""
    return {"phase": "Failed", "reason": UNSUPPORTED, "message": message}


def status(pod: pod_types.Pod, views: pod_decisions.Views, facts: PodFacts) -> dict[str, Any]:
    """Return the whole status for the node to write."""
    before = pod.status if facts.written is None else facts.written
    phase = _phase(pod, views)
    failure = pod_decisions.failure(pod, facts.wall)
    shut_down = facts.leaving and phase == "Failed" and not pod.final
    if failure is not None and not pod.final:
        phase = "Running" if _any_running(views) else "Failed"
    conditions = _conditions(pod, views, phase)
    status = {
        "phase": phase,
        "hostIP": facts.address,
        "hostIPs": [{"ip": facts.address}],
        "podIP": facts.address,
        "podIPs": [{"ip": facts.address}],
        "startTime": before.get("startTime") or clock.rfc3339(facts.wall),
        "conditions": [
            # Conditions of other writers are kept: a merge patch replaces the whole list.
            *(c for c in pod.status.get("conditions") or () if c.get("type") not in _OURS),
            *_dated(conditions, before.get("conditions") or (), clock.rfc3339(facts.wall)),
        ],
        "containerStatuses": [_container(pod, c, views) for c in pod.spec.containers],
    }
    if pod.init_containers:
        status["initContainerStatuses"] = [_container(pod, c, views) for c in pod.init_containers]
    if pod.ephemeral_containers:
        status[EPHEMERAL] = _ephemeral(pod, views, before)
    if failure is not None and phase == "Failed" and not pod.final:
        status["reason"], status["message"] = failure
    elif shut_down:
        status["reason"], status["message"] = _SHUT_DOWN
    return status


def _any_running(views: pod_decisions.Views) -> bool:
    return any(view.running for view in views.values())


def _view(views: pod_decisions.Views, name: str) -> pod_decisions.ContainerView:
    return views.get(name, pod_decisions.UNKNOWN)


# The Pod as a whole


def _phase(pod: pod_types.Pod, views: pod_decisions.Views) -> str:
    if pod.final:
        return pod.phase
    by_name = {c.name: _view(views, c.name) for c in pod.spec.containers}
    ends = [_end(pod, c, by_name[c.name]) for c in pod.spec.containers]
    if all(end is not None for end in ends):
        if _any_running(views):
            return "Running"
        return "Failed" if any(ends) else "Succeeded"
    if pod.metadata.deletion_timestamp is not None and not _any_running(views):
        return "Failed"  # no container will be started (kubelet, status manager, TerminatePod)
    if not _initialised(pod, views):
        failed = any(_end(pod, c, _view(views, c.name)) for c in pod.init_containers)
        return "Failed" if failed and not _any_running(views) else "Pending"
    begun = all(view.last is not None for view in by_name.values())
    return "Running" if begun else "Pending"


def _end(
    pod: pod_types.Pod, container: pod_types.Container, view: pod_decisions.ContainerView
) -> int | None:
    """Return the exit code of a container that has ended for good, or None."""
    if view.last is None or view.running:
        return None
    deleted = pod.metadata.deletion_timestamp is not None
    # In a Pod that is deleted or has ended, no container is started again.
    restarts_again = pod_decisions.restarts(pod, container, view) and not (deleted or pod.final)
    return None if restarts_again else view.last.exit_code


def _initialised(pod: pod_types.Pod, views: pod_decisions.Views) -> bool:
    """Return whether all init containers have succeeded and all sidecars have started."""
    if pod_decisions.has_begun(pod, views):
        return True
    for container in pod.init_containers:
        view = _view(views, container.name)
        if container.sidecar:
            done = view.running and view.started
        else:
            done = view.last is not None and view.last.exit_code == 0
        if not done:
            return False
    return True


def is_ready(
    pod: pod_types.Pod, container: pod_types.Container, view: pod_decisions.ContainerView
) -> bool:
    """Return whether a container is ready.

    An init container is ready once it has succeeded, any other container while it runs and its
    probes succeed. A container that is killed at once with its deleted Pod is not ready.
    """
    if container in pod.init_containers and not container.sidecar:
        return view.last is not None and view.last.exit_code == 0
    dying = pod.metadata.deletion_timestamp is not None and view.stop_s == 0
    return view.running and view.started and view.ready and not dying


def _conditions(pod: pod_types.Pod, views: pod_decisions.Views, phase: str) -> list[dict[str, str]]:
    initialised = _initialised(pod, views) or phase == "Succeeded"
    unready = [
        c.name
        for c in (*(i for i in pod.init_containers if i.sidecar), *pod.spec.containers)
        if not is_ready(pod, c, _view(views, c.name))
    ]
    unfinished = [c.name for c in pod.init_containers if not is_ready(pod, c, _view(views, c.name))]
    containers_ready = _condition(
        "ContainersReady", not unready, _why(phase, "ContainersNotReady", "unready status", unready)
    )
    gates = [str(g.get("conditionType")) for g in pod.spec.readiness_gates or ()]
    shut = [gate for gate in gates if not _holds(pod, gate)]
    ready = {**containers_ready, "type": "Ready"}
    if shut and not unready:
        text = f"the status of pod readiness gate is not True: {shut}"
        ready = _condition("Ready", False, ("ReadinessGatesNotReady", text))
    return [
        _condition("PodReadyToStartContainers", _any_running(views), None),
        _condition(
            "Initialized",
            initialised,
            _why("", "ContainersNotInitialized", "incomplete status", unfinished),
        ),
        ready,
        containers_ready,
        *_fields_ignored(pod),
    ]


def _fields_ignored(pod: pod_types.Pod) -> Iterator[dict[str, str]]:
    if message := ignored_message(pod):
        yield {
            "type": FIELDS_IGNORED,
            "status": "True",
            "reason": "NotOfferedByNode",
            "message": message,
        }


def ignored_message(pod: pod_types.Pod) -> str:
    """Return a text that names the fields without effect on this node, and why; "" if none."""
    return sentences(container_plan.ignored(pod))


def sentences(ignored: Sequence[field_support.Finding]) -> str:
    """Return the text for findings about fields without effect; "" if there are none."""
    descriptions = [field_support.describe_finding(one) for one in ignored]
    more = (
        [f"and {len(descriptions) - _SHOWN_FIELDS} more"]
        if len(descriptions) > _SHOWN_FIELDS
        else []
    )
    return "; ".join([*descriptions[:_SHOWN_FIELDS], *more])


def _condition(kind: str, holds: bool, why: tuple[str, str] | None) -> dict[str, str]:  # noqa: FBT001
    if holds or why is None:
        return {"type": kind, "status": "True" if holds else "False"}
    reason, message = why
    status = {"type": kind, "status": "False", "reason": reason}
    return {**status, "message": message} if message else status


def _why(phase: str, reason: str, what: str, names: Sequence[str]) -> tuple[str, str]:
    if phase in _ENDED:
        return _ENDED[phase], ""
    return reason, f"containers with {what}: [{' '.join(names)}]"


def _holds(pod: pod_types.Pod, kind: str) -> bool:
    conditions = pod.status.get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def _dated(
    conditions: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, Any]], moment: str
) -> list[dict[str, Any]]:
    """Return the conditions with the time of their last transition.

    The time is kept while the status of the condition stays the same.
    """
    old_by_type = {str(c.get("type")): c for c in before}
    result = []
    for condition in conditions:
        old = old_by_type.get(condition["type"], {})
        unchanged = old.get("status") == condition["status"] and "lastTransitionTime" in old
        when = old["lastTransitionTime"] if unchanged else moment
        result.append({**condition, "lastTransitionTime": when})
    return result


# One container


def _container(
    pod: pod_types.Pod, container: pod_types.Container, views: pod_decisions.Views
) -> dict[str, Any]:
    view = _view(views, container.name)
    last = view.last
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": is_ready(pod, container, view),
        "started": view.running and view.started,
        "restartCount": last.number if last is not None else 0,
        "state": _state(pod, container, views),
        "lastState": {},
    }
    if last is not None:
        status["containerID"] = f"kiln://{last.id}"
        # While a container waits, its newest end is not in `state`, so it goes into `lastState`.
        older = view.before if "waiting" not in status["state"] else last
        if older is not None and older.exit_code is not None:
            status["lastState"] = {"terminated": _terminated(older)}
    return status


def _ephemeral(
    pod: pod_types.Pod, views: pod_decisions.Views, before: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the statuses of the ephemeral containers.

    Statuses of ended containers are reused as written, since a Pod may have hundreds.
    """
    written = {s.get("name"): s for s in before.get(EPHEMERAL) or ()}
    result = []
    for container in pod.ephemeral_containers:
        entry = written.get(container.name)
        if entry is None or "terminated" not in (entry.get("state") or {}):
            entry = _ephemeral_status(pod, container, _view(views, container.name))
        result.append(entry)
    return result


def only_started(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether the only change of ephemeral containers is that some were added or started."""
    old_by_name = {s.get("name"): s for s in before.get(EPHEMERAL) or ()}
    return not any(
        "terminated" in now["state"] or "message" in now["state"].get("waiting", {})
        for now in after[EPHEMERAL]
        if now is not (was := old_by_name.get(now["name"])) and now != was
    )


def ephemeral_patch(
    uid: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the JSON patch between two statuses that differ only in ephemeral containers."""
    path, old, new = f"/status/{EPHEMERAL}", before.get(EPHEMERAL) or [], after[EPHEMERAL]
    operations = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    if not old or [s.get("name") for s in old] != [s["name"] for s in new[: len(old)]]:
        return [*operations, {"op": "add", "path": path, "value": new}]
    for position, (was, now) in enumerate(zip(old, new, strict=False)):
        if was is not now and was != now:
            here = f"{path}/{position}"
            operations.append({"op": "test", "path": f"{here}/name", "value": now["name"]})
            operations.append({"op": "replace", "path": here, "value": now})
    added = new[len(old) :]
    return [*operations, *({"op": "add", "path": f"{path}/-", "value": one} for one in added)]


def _ephemeral_status(
    pod: pod_types.Pod, container: pod_types.EphemeralContainer, view: pod_decisions.ContainerView
) -> dict[str, Any]:
    last = view.last
    state: dict[str, Any] = {
        "waiting": {"reason": "PodInitializing" if pod.init_containers else "ContainerCreating"}
    }
    if last is not None and view.running:
        state = {"running": {"startedAt": clock.rfc3339(last.started_at)}}
    elif last is not None:
        state = {"terminated": _terminated(last)}
    elif view.reason:
        state = {"waiting": {"reason": view.reason, "message": view.message}}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
        "lastState": {},
        **({} if last is None else {"containerID": f"kiln://{last.id}"}),
    }


def _state(
    pod: pod_types.Pod, container: pod_types.Container, views: pod_decisions.Views
) -> dict[str, Any]:
    view = _view(views, container.name)
    last = view.last
    if last is not None and view.running:
        return {"running": {"startedAt": clock.rfc3339(last.started_at)}}
    with_others = container.sidecar and pod_decisions.only_sidecars_left(pod, views)
    if last is not None and (with_others or _end(pod, container, view) is not None):
        return {"terminated": _terminated(last)}
    if view.reason:
        return {"waiting": {"reason": view.reason, "message": view.message}}
    if last is None:
        waits = container in pod.spec.containers and not _initialised(pod, views)
        return {"waiting": {"reason": "PodInitializing" if waits else "ContainerCreating"}}
    wait_s = pod_decisions.RESTARTS.delay_s(view.row - 1)
    name = f"{container.name} pod={pod.metadata.name}_{pod.metadata.namespace}"
    message = f"back-off {wait_s:g}s restarting failed container={name}({pod.metadata.uid})"
    return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _terminated(record: containers.ContainerRecord) -> dict[str, Any]:
    reason = record.reason or ("Completed" if record.exit_code == 0 else "Error")
    status: dict[str, Any] = {
        "exitCode": record.exit_code,
        "reason": reason,
        "startedAt": clock.rfc3339(record.started_at or record.finished_at),
        "finishedAt": clock.rfc3339(record.finished_at),
        "containerID": f"kiln://{record.id}",
    }
    if record.signal:
        status["signal"] = record.signal
    if record.message:
        status["message"] = record.message
    return status
