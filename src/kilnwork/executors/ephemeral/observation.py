"""Derivation of the state of an attempt from the status of its ephemeral container.

No I/O. Used by `executor`. Exit codes, signals and memory mean the same as for containers of any
Pod, and an end of the whole Pod is a loss. Whether the attempt has a result is reported by its
worker.
"""

import msgspec

from kilnwork.api import attempts, pod, reasons
from kilnwork.executors import port
from kilnwork.executors.pod import observation as pod_judge

_R = reasons.Reason
_E = attempts.Ending

_EX_TEMPFAIL = 75
_SIGKILL = 137

_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})


def observe(seen: pod.Pod, status: pod.ContainerStatus | None) -> port.Observation:
    """Return the observation of an attempt whose container is in the spec of the Pod `seen`."""
    node = seen.spec.node_name
    if status is None:
        message = f"a container of it was added to Pod {seen.metadata.name}"
        return _staging(_R.STARTING, message, node)
    ended, container = status.state.terminated, status.container_id
    if ended is not None:
        outcome = _outcome(seen, ended)
        return port.Observation(
            phase=port.Phase.OVER,
            reason=outcome.reason,
            message=outcome.message,
            node=node,
            started=outcome.started,
            outcome=outcome,
            container=_bare(container),
        )
    if status.state.running is not None:
        return port.Observation(
            phase=port.Phase.RUNNING,
            reason=_R.STARTED,
            node=node,
            started=status.state.started,
            container=_bare(container),
        )
    return _waiting(seen, status, node)


def lost(pod_name: str) -> port.Observation:
    """Return the observation of an attempt whose Pod is gone or was replaced, so that its worker
    ends.
    """
    message = f"Pod {pod_name} was deleted before its end was seen"
    return over(attempts.Outcome(_E.LOST, _R.WORKER_STOPPING, message))


def name_taken(pod_name: str, name: str, attempt: port.Attempt) -> port.Observation:
    """Return the observation of an attempt whose container name is already taken.

    Another client has added a container with this name, which cannot be removed.
    """
    message = (
        f"container {name} of Pod {pod_name} was not made for this task, and cannot be removed: "
        f"retry the task (kiln retry {attempt.name} -n {attempt.namespace}) for another name"
    )
    return over(attempts.Outcome(_E.FAILED, _R.NAME_TAKEN, message, may_retry=False))


def withdrawn(stop: port.Stop) -> port.Observation:
    """Return the observation of a stopped attempt whose container was never added, and will not
    be.
    """
    return over(attempts.Outcome(_E.STOPPED, stop.reason))


def refused(message: str) -> port.Observation:
    """Return the observation of an attempt whose container the API server will never accept."""
    return over(attempts.Outcome(_E.FAILED, _R.ADMISSION_ERROR, message, may_retry=False))


def over(outcome: attempts.Outcome) -> port.Observation:
    """Return the observation of an attempt that has ended with this outcome."""
    return port.Observation(
        phase=port.Phase.OVER, reason=outcome.reason, message=outcome.message, outcome=outcome
    )


def _staging(reason: str, message: str, node: str) -> port.Observation:
    return port.Observation(phase=port.Phase.STAGING, reason=reason, message=message, node=node)


def _waiting(seen: pod.Pod, status: pod.ContainerStatus, node: str) -> port.Observation:
    waiting = status.state.waiting
    if waiting is None or waiting.reason in _ON_ITS_WAY:
        return _staging(_R.STARTING, f"Pod {seen.metadata.name} starts its container", node)
    of_it = msgspec.structs.replace(
        seen, status=pod.PodStatus(phase="Running", container_statuses=(status,))
    )
    found = pod.find_trouble(of_it)
    no_image = found is not None and found.kind is pod.TroubleKind.NO_IMAGE
    reason = _R.IMAGE_PULL if no_image else _R.CONTAINER_NOT_STARTED
    return _staging(reason, "" if found is None else found.text, node)


def _outcome(seen: pod.Pod, ended: pod.Terminated) -> attempts.Outcome:
    ending, reason, message = _why(ended)
    loss = pod_judge.loss_of(seen, pod.parse_time(ended.finished_at))
    if loss is not None and ending is not _E.SUCCEEDED:
        ending, (reason, message) = _E.LOST, loss
        if reason == _R.POD_LOST:  # so that the worker gets no new tasks
            reason = _R.WORKER_STOPPING
    return attempts.Outcome(
        ending,
        reason,
        message,
        ended.exit_code,
        requested_retry=reason is _R.RETRY_REQUESTED,
        started=pod.parse_time(ended.started_at),
        finished=pod.parse_time(ended.finished_at),
    )


def _why(ended: pod.Terminated) -> tuple[attempts.Ending, str, str]:
    if ended.reason == "OOMKilled":
        return _E.FAILED, _R.OUT_OF_MEMORY, "its container used more memory than it may"
    if ended.reason in ("ContainerCannotRun", "StartError"):
        return _E.FAILED, _R.COMMAND_NOT_FOUND, f"its container cannot run: {ended.message}"
    if ended.exit_code == 0:
        return _E.SUCCEEDED, _R.SUCCEEDED, ""
    if ended.exit_code == _EX_TEMPFAIL:
        return _E.FAILED, _R.RETRY_REQUESTED, "exit code 75 asks for a retry"
    if ended.exit_code == _SIGKILL:
        return _E.LOST, _R.PROCESS_KILLED, f"its container {pod_judge.how_killed(ended)}"
    detail = f": {ended.message}" if ended.message else ""
    return _E.FAILED, _R.NON_ZERO_EXIT, f"exit code {ended.exit_code}{detail}"


def _bare(container_id: str) -> str:
    """Return a container id without the prefix of the container runtime, as in cgroup names."""
    return container_id.rpartition("//")[2]
