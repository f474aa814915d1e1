"""Derivation of the state of an attempt from the status of its Pod.

No I/O. Used by `executor`; `states_reference` has the table. The final phase decides about success
and failure: a container that was restarted after running out of memory and then succeeded has
succeeded (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/). What Kubernetes
itself ends (eviction, preemption, a node that is lost or shuts down) is a loss and not a failure of
the task.
"""

from collections.abc import Iterator

from kilnwork.api import attempts, pod, reasons
from kilnwork.executors import port

_R = reasons.Reason
_E = attempts.Ending

_EX_TEMPFAIL = 75
_SIGKILL = 137

_LOSSES = {
    "Evicted": _R.EVICTED,
    "Preempting": _R.PREEMPTED,
    "Preempted": _R.PREEMPTED,
    "NodeLost": _R.NODE_LOST,
    "NodeShutdown": _R.NODE_LOST,
    "Terminated": _R.NODE_LOST,
    "Shutdown": _R.NODE_LOST,
}
"""`status.reason` of Pods that Kubernetes ended (pkg/kubelet/eviction, …/preemption,
…/nodeshutdown)."""

_REFUSED_BY_NODE = (
    "OutOf", "NodeAffinity", "UnexpectedAdmissionError", "TopologyAffinityError", "PodRejected",
    "InvalidNodeInfo", "UnknownPodAdmission",
)  # fmt: skip
"""Prefixes of `status.reason` of Pods that a kubelet refused after they were scheduled to its
node."""


def observe(seen: pod.Pod, stop: port.Stop | None, *, spec: dict[str, object]) -> port.Observation:
    """Return the observation of an attempt whose Pod is `seen`. `spec`: the Pod's spec, for its
    memory limits.

    `stop`: set if the attempt is to end. An end by itself counts if it came before the deletion of
    the Pod was requested, which is certain only if the Pod is unchanged.
    """
    started = _running_since(seen)
    node = seen.spec.node_name
    outcome = _outcome(seen, stop, spec)
    if outcome is not None:
        return port.Observation(
            phase=port.Phase.OVER,
            reason=outcome.reason,
            message=outcome.message,
            node=node,
            started=started,
            outcome=outcome,
        )
    reason, message = _why(seen, running=started is not None)
    phase = port.Phase.STAGING if started is None else port.Phase.RUNNING
    return port.Observation(phase=phase, reason=reason, message=message, node=node, started=started)


def gone(name: str, stop: port.Stop | None, *, proof: bool = True) -> port.Observation:
    """Return the observation of an attempt whose Pod does not exist any more.

    `proof`: whether it is certain that no process of the attempt runs.
    """
    if stop is not None:
        message = f"Pod {name} is gone"
        if not proof:
            message += ", removed by force: its containers were not seen to end"
        outcome = attempts.Outcome(_E.STOPPED, stop.reason, message, proof=proof)
    else:
        message = f"Pod {name} was deleted before its end was seen"
        outcome = attempts.Outcome(_E.LOST, _R.POD_LOST, message)
    return port.Observation(
        phase=port.Phase.OVER, reason=outcome.reason, message=outcome.message, outcome=outcome
    )


def _outcome(
    seen: pod.Pod, stop: port.Stop | None, spec: dict[str, object]
) -> attempts.Outcome | None:
    """Return the outcome of an attempt whose Pod has ended; None while any container of the Pod may
    run.
    """
    phase = seen.status.phase
    if phase not in ("Succeeded", "Failed"):
        unscheduled = seen.terminating and not seen.spec.node_name
        if not unscheduled:
            return None
    started, finished = _started(seen), _finished(seen)
    own = stop is None or not seen.terminating
    if phase == "Succeeded" and own:
        return attempts.Outcome(
            _E.SUCCEEDED, _R.SUCCEEDED, exit_code=0, started=started, finished=finished
        )
    if not own and stop is not None:
        return attempts.Outcome(
            _E.STOPPED,
            stop.reason,
            seen.disruption if _orphaned(seen) else "",
            _exit_code(seen),
            proof=not _orphaned(seen),
            started=started,
            finished=finished,
        )
    return _ended_badly(seen, spec, started=started, finished=finished)


def _ended_badly(
    seen: pod.Pod, spec: dict[str, object], *, started: float | None, finished: float | None
) -> attempts.Outcome:
    loss = loss_of(seen, finished)
    if loss is not None:
        reason, message = loss
        return attempts.Outcome(
            _E.LOST, reason, message, _exit_code(seen), started=started, finished=finished
        )
    failed = next(_failed(seen), None)
    if failed is None:
        detail = ": ".join(p for p in (seen.status.reason, seen.status.message) if p)
        reason = _R.DEADLINE_EXCEEDED if seen.status.reason == "DeadlineExceeded" else _R.POD_FAILED
        return attempts.Outcome(_E.FAILED, reason, detail, started=started, finished=finished)
    container, end = failed
    reason, message = _failure(seen, container, end, spec)
    ending = _E.LOST if reason is _R.PROCESS_KILLED else _E.FAILED
    return attempts.Outcome(
        ending,
        reason,
        message,
        end.exit_code,
        requested_retry=reason is _R.RETRY_REQUESTED,
        started=started,
        finished=finished,
    )


def loss_of(seen: pod.Pod, finished: float | None) -> tuple[str, str] | None:
    """Return the reason and message why Kubernetes or another client ended the Pod; None if neither
    did.
    """
    name, status = seen.metadata.name, seen.status
    if status.reason in _LOSSES:
        return _LOSSES[status.reason], f"Pod {name}: {status.reason}: {status.message}"
    if status.reason.startswith(_REFUSED_BY_NODE):
        message = f"node {seen.spec.node_name} refused Pod {name}: {status.reason}"
        return _R.NODE_REFUSED, f"{message}: {status.message}"
    if _orphaned(seen):
        return _R.NODE_LOST, f"Pod {name} on node {seen.spec.node_name}: {seen.disruption}"
    if seen.disruption:
        preempted = seen.disruption.startswith("PreemptionByScheduler")
        reason = _R.PREEMPTED if preempted else _R.EVICTED
        return reason, f"Pod {name} was disrupted: {seen.disruption}"
    deleted = _deleted(seen)
    if deleted is None or (finished is not None and finished < deleted):
        return None  # deleted only after its end, if at all
    return _R.POD_LOST, f"Pod {name} was deleted by another client"


def _orphaned(seen: pod.Pod) -> bool:
    """Return whether the control plane has marked the Pod Failed because its Node object was
    deleted.

    Its containers were not seen to end (kubernetes pkg/controller/podgc).
    """
    return seen.disruption.startswith("DeletionByPodGC")


def _deleted(seen: pod.Pod) -> float | None:
    """Return when the deletion of a Pod was requested, by the API server's clock; None if it was
    not.

    `deletionTimestamp` is the end of the grace period (apiserver pkg/registry/rest, BeforeDelete).
    """
    ends = pod.parse_time(seen.metadata.deletion_timestamp)
    return None if ends is None else ends - (seen.metadata.deletion_grace_period_seconds or 0)


def _failed(seen: pod.Pod) -> Iterator[tuple[pod.ContainerStatus, pod.Terminated]]:
    """Yield containers that ended with an exit code other than 0, init containers last."""
    status = seen.status
    for container in (*status.container_statuses, *status.init_container_statuses):
        ended = container.state.terminated
        if ended is not None and ended.exit_code:
            yield container, ended


def _failure(
    seen: pod.Pod, container: pod.ContainerStatus, end: pod.Terminated, spec: dict[str, object]
) -> tuple[reasons.Reason, str]:
    name = container.name
    if seen.status.reason == "DeadlineExceeded":
        return _R.DEADLINE_EXCEEDED, seen.status.message
    if end.reason == "OOMKilled":
        limit = memory_limit(spec, name)
        of = f" of {limit}" if limit else ""
        return _R.OUT_OF_MEMORY, f"container {name} used more memory than its limit{of}"
    if end.exit_code == _EX_TEMPFAIL:
        return _R.RETRY_REQUESTED, f"container {name} exited 75"
    if end.exit_code == _SIGKILL:
        return _R.PROCESS_KILLED, f"container {name} {how_killed(end)}"
    if end.reason in ("ContainerCannotRun", "StartError"):
        return _R.COMMAND_NOT_FOUND, f"container {name} cannot run: {end.message}"
    detail = f": {end.message}" if end.message else ""
    return _R.NON_ZERO_EXIT, f"container {name} exited {end.exit_code}{detail}"


def how_killed(end: pod.Terminated) -> str:
    """Return a message about a container that ended with exit code 137, which a kubelet also
    reports for lost containers.
    """
    if end.reason == "ContainerStatusUnknown":
        return f"ended, and its end was not seen: {end.message}"
    return "was killed by signal 9"


def memory_limit(spec: dict[str, object], container: str) -> str:
    """Return `resources.limits.memory` of a container, as written in the Pod's spec; "" if it is
    not set.
    """
    for group in ("containers", "initContainers"):
        given = spec.get(group)
        for one in given if isinstance(given, list) else ():
            match one:
                case {"name": str(name), "resources": {"limits": {"memory": limit}}}:
                    if name == container:
                        return str(limit)
    return ""


def _why(seen: pod.Pod, *, running: bool) -> tuple[str, str]:
    """Return the reason and message for the current state of a Pod that has not finished."""
    name, status = seen.metadata.name, seen.status
    if status.phase == "Unknown" or seen.node_lost_since is not None:
        return _R.NODE_LOST, f"Kubernetes does not hear of node {seen.spec.node_name}"
    if running:
        return _R.STARTED, _restarting(seen)
    found = pod.find_trouble(seen)
    if found is None:
        return _R.STARTING, f"Pod {name} is being started"
    if found.kind is pod.TroubleKind.UNSCHEDULABLE:
        return _R.UNSCHEDULABLE, found.text
    if found.kind is pod.TroubleKind.NO_IMAGE:
        return _R.IMAGE_PULL, found.text
    return _R.CONTAINER_NOT_STARTED, found.text


def _restarting(seen: pod.Pod) -> str:
    found = pod.find_trouble(seen)
    return "" if found is None else found.text


def _running_since(seen: pod.Pod) -> float | None:
    """Return when the containers of a Pod began; for a running Pod whose containers have no times,
    when it was created.
    """
    started = _started(seen)
    if started is None and seen.status.phase == "Running":
        return pod.parse_time(seen.metadata.creation_timestamp)
    return started


def _started(seen: pod.Pod) -> float | None:
    """Return when the first container of a Pod began, not counting init containers; None if none
    has begun.
    """
    times = [
        moment
        for container in seen.status.container_statuses
        for state in (container.state, container.last_state)
        if (moment := state.started) is not None
    ]
    return min(times, default=None)


def _finished(seen: pod.Pod) -> float | None:
    """Return when the last container of a Pod ended; None if that is unknown."""
    times = [
        moment
        for container in (*seen.status.container_statuses, *seen.status.init_container_statuses)
        if container.state.terminated is not None
        and (moment := pod.parse_time(container.state.terminated.finished_at)) is not None
    ]
    return max(times, default=None)


def _exit_code(seen: pod.Pod) -> int | None:
    failed = next(_failed(seen), None)
    return None if failed is None else failed[1].exit_code
