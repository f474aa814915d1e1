"""Decisions about one Pod: what to do next, given its object and the state of its containers.

Does no I/O and reads no clock. The reconciler carries the decisions out and asks again whenever
something has changed. A `ContainerView` is all that the node remembers of a container. The status
is computed in `statuses`. The order of containers is the kubelet's (k8s.io/kubernetes
pkg/kubelet/kuberuntime, computePodActions and computeInitContainerActions; sidecars: KEP-753).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kilnwork.controlplane.node import container_plan, pod_types
from kilnwork.controlplane.node import shim_container as containers
from kilnwork.kit import backoff, clock

RESTARTS = backoff.Backoff(base_s=1.0, max_s=60.0)
"""Delays before restarts in a row, from the second one on. The first restart is immediate."""

STEADY_S = 600.0
"""Seconds that a container must run before its restarts count from 0 again (as in the kubelet)."""

UNSEEN_GRACE_S = 1.0
"""Grace period of a container whose Pod object is gone (the kubelet's minimum)."""

SIDECAR_GRACE_S = 2.0
"""Minimum grace period of a sidecar after all other containers have ended or used up their grace
period (the kubelet's minimumGracePeriodInSeconds): the sidecar may have results to deliver."""

MAX_EPHEMERAL_STARTS = 8
"""Maximum number of ephemeral containers to start in one pass, so that the first results are
reported before hundreds more start."""

DEADLINE = "DeadlineExceeded"


class ContainerView(NamedTuple):
    """State of one container as the node knows it."""

    last: containers.ContainerRecord | None = None
    """The newest start."""
    before: containers.ContainerRecord | None = None
    """The start before `last`."""
    row: int = 0
    """Number of times in a row that the container has ended; 1 again after a run of `STEADY_S`."""
    start_at: float = 0.0
    """Earliest time of the next start (monotonic)."""
    reason: str = ""
    """Why the newest attempt to start the container failed; empty otherwise."""
    message: str = ""
    """Message for `reason`."""
    stop_s: float | None = None
    """Grace period with which the container was stopped; None if it was not stopped."""
    started: bool = True
    """Whether the startup probe has succeeded, or the postStart hook of a container without such a
    probe. True for a container with neither."""
    ready: bool = True
    """Result of the readiness probe while the container runs. True without such a probe."""
    failing: str = ""
    """What failed and ends the container, so that it starts again whatever its exit code is:
    Startup, Liveness or PostStart; "" for nothing."""

    @property
    def running(self) -> bool:
        """Return whether any process of the container is left."""
        return self.last is not None and self.last.exit_code is None


Views = Mapping[str, ContainerView]
"""Views by the container's name. A missing view counts as a new `ContainerView`."""

UNKNOWN = ContainerView()


class RefusePod(NamedTuple):
    """Decision: fail a Pod for good."""

    message: str


class StartContainer(NamedTuple):
    """Decision: start a container; `number` counts its starts from 0."""

    container: str
    number: int


class WaitToStart(NamedTuple):
    """Decision: start a container again after `seconds`."""

    container: str
    seconds: float


class StopContainer(NamedTuple):
    """Decision: stop a container, and kill it after `grace_s`."""

    container: str
    grace_s: float


class RemovePod(NamedTuple):
    """Decision: delete a Pod object, since none of its containers is left."""


class StartMore(NamedTuple):
    """Decision: decide again at once, because more containers can be started."""


Decision = RefusePod | StartContainer | WaitToStart | StopContainer | RemovePod | StartMore


class DecisionTime(NamedTuple):
    """The current time on both clocks."""

    monotonic: float
    wall: float
    leaving_s: float | None = None
    """Maximum grace period while the node shuts down; None otherwise."""


def decide(pod: pod_types.Pod, views: Views, now: DecisionTime) -> list[Decision]:
    """Return what to do next, or [] if there is nothing to do until something changes."""
    if pod.metadata.deletion_timestamp is not None:
        return _decide_deleted(pod, views, now)
    grace_s = pod.grace_s if now.leaving_s is None else min(pod.grace_s, now.leaving_s)
    if now.leaving_s is not None or pod.final or failure(pod, now.wall):
        return list(_stops(pod, views, grace_s, rest_s=grace_s))
    if refusal := container_plan.refusal(pod):
        return [RefusePod(refusal)]
    if only_sidecars_left(pod, views):
        return list(_stops(pod, views, grace_s, rest_s=max(SIDECAR_GRACE_S, grace_s)))
    decided, initialised = _initialise(pod, views, now)
    if initialised:
        for container in pod.spec.containers:
            decided += _keep_up(pod, container, views, now)
    return decided + _ephemeral_starts(pod, views, now)


def _ephemeral_starts(pod: pod_types.Pod, views: Views, now: DecisionTime) -> list[Decision]:
    """Start each ephemeral container once.

    This happens even before the Pod is initialised, since users debug the initialisation with them.
    """
    names = [container.name for container in pod.ephemeral_containers]
    new = [name for name in names if name not in views]
    waiting = (
        name
        for name in names
        if (view := views.get(name)) is not None
        and view.last is None
        and view.start_at <= now.monotonic
    )
    starts = [StartContainer(name, 0) for name in (*new[:MAX_EPHEMERAL_STARTS], *waiting)]
    return [*starts, StartMore()] if len(new) > MAX_EPHEMERAL_STARTS else [*starts]


def _decide_deleted(pod: pod_types.Pod, views: Views, now: DecisionTime) -> list[Decision]:
    if any(view.running for view in views.values()):
        ends_at = clock.parse_rfc3339(pod.metadata.deletion_timestamp or "")
        # Sidecars are stopped last, with the rest of the Pod's grace period.
        rest_s = max(SIDECAR_GRACE_S, min(pod.grace_s, ends_at - now.wall))
        return list(_stops(pod, views, pod.grace_s, rest_s=min(pod.grace_s, rest_s)))
    # With grace 0 the object is deleted already: only a finalizer keeps it.
    done = pod.metadata.deletion_grace_period_seconds == 0
    return [] if done else [RemovePod()]


def _stops(
    pod: pod_types.Pod, views: Views, grace_s: float, *, rest_s: float
) -> Iterator[StopContainer]:
    """Yield the containers to stop. A grace period that was set before can only become shorter.

    Sidecars are stopped after all other containers, with `rest_s`. They do not wait for ephemeral
    containers, as with the kubelet.
    """
    sidecars = {c.name for c in pod.all_containers if c.sidecar}
    busy = any(_view(views, c.name).running for c in pod.all_containers if not c.sidecar)
    for name, view in views.items():
        wanted_s = rest_s if name in sidecars else grace_s
        if not view.running or (busy and name in sidecars):
            continue
        if view.stop_s is None or wanted_s < view.stop_s:
            yield StopContainer(name, wanted_s)


# Starts and restarts


def _initialise(pod: pod_types.Pod, views: Views, now: DecisionTime) -> tuple[list[Decision], bool]:
    """Return what the init containers need, and whether the main containers may run."""
    decided: list[Decision] = []
    begun = has_begun(pod, views)
    for container in pod.init_containers:
        view = _view(views, container.name)
        if container.sidecar:
            decided += _keep_up(pod, container, views, now)
            # The next containers wait for the start of a sidecar, not for its end (KEP-753).
            if not begun and not (view.running and view.started):
                return decided, False
        elif not begun and not (view.last is not None and view.last.exit_code == 0):
            return decided + _keep_up(pod, container, views, now), False
    return decided, True


def has_begun(pod: pod_types.Pod, views: Views) -> bool:
    """Return whether a main container was started, so that all init containers have finished."""
    return any(_view(views, c.name).last is not None for c in pod.spec.containers)


def _keep_up(
    pod: pod_types.Pod, container: pod_types.Container, views: Views, now: DecisionTime
) -> list[Decision]:
    """Keep a container running, unless it has ended for good."""
    view = _view(views, container.name)
    if view.running:
        if not view.failing or view.stop_s is not None:
            return []
        return [StopContainer(container.name, _failure_grace_s(pod, container, view.failing))]
    if view.last is not None and not restarts(pod, container, view):
        return []
    if view.start_at > now.monotonic:
        return [WaitToStart(container.name, view.start_at - now.monotonic)]
    return [StartContainer(container.name, 0 if view.last is None else view.last.number + 1)]


def _failure_grace_s(pod: pod_types.Pod, container: pod_types.Container, failing: str) -> float:
    """Return the grace period of a container with a failed probe or hook: the probe's own, or else
    the Pod's (kubelet, setTerminationGracePeriod).
    """
    probes = {"Startup": container.startup_probe, "Liveness": container.liveness_probe}
    probe = probes.get(failing)
    own = probe.termination_grace_period_seconds if probe is not None else None
    return pod.grace_s if own is None else float(own)


def restarts(pod: pod_types.Pod, container: pod_types.Container, view: ContainerView) -> bool:
    """Return whether a container that has ended is started again."""
    # A sidecar is restarted whatever the Pod's restartPolicy is (KEP-753).
    if view.last is None or container.sidecar:
        return True
    policy = pod.spec.restart_policy
    if view.failing:
        return policy != "Never"
    failed = view.last.exit_code != 0
    if container in pod.init_containers:
        return failed and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and failed)


def only_sidecars_left(pod: pod_types.Pod, views: Views) -> bool:
    """Return whether only sidecars are left to run, so that they must be stopped."""
    for container in pod.init_containers:
        view = _view(views, container.name)
        if not container.sidecar and _ended_for_good(pod, container, view):
            assert view.last is not None  # noqa: S101 - for the type checker
            if view.last.exit_code != 0:
                return True
    return all(_ended_for_good(pod, c, _view(views, c.name)) for c in pod.spec.containers)


def _ended_for_good(
    pod: pod_types.Pod, container: pod_types.Container, view: ContainerView
) -> bool:
    ended = view.last is not None and not view.running
    return ended and not restarts(pod, container, view)


def failure(pod: pod_types.Pod, wall: float) -> tuple[str, str] | None:
    """Return reason and message if the Pod must fail although containers could go on, or None."""
    left_s = deadline_left_s(pod, wall)
    if left_s is None or left_s > 0:
        return None
    return DEADLINE, "Pod was active on the node longer than the specified deadline"


def deadline_left_s(pod: pod_types.Pod, wall: float) -> float | None:
    """Return the seconds until the Pod's `activeDeadlineSeconds` have passed, or None if unset."""
    limit_s, start = pod.spec.active_deadline_seconds, pod.status.get("startTime")
    if limit_s is None or not start:
        return None
    return clock.parse_rfc3339(str(start)) + limit_s - wall


def _view(views: Views, name: str) -> ContainerView:
    return views.get(name, UNKNOWN)


# Ends and earlier starts


def after_end(
    view: ContainerView, record: containers.ContainerRecord, *, now: float
) -> ContainerView:
    """Return the view of a container whose newest start has ended.

    The view contains the earliest time of the next start.
    """
    lasted = record.finished_at - record.started_at if record.started_at else 0.0
    row = 1 if lasted >= STEADY_S else view.row + 1
    return view._replace(last=record, row=row, start_at=now + RESTARTS.delay_s(row - 1))


def recall_start(
    pod: pod_types.Pod, name: str, *, wall: float
) -> containers.ContainerRecord | None:
    """Return the newest start of a container that no shim remembers, or None.

    The start is taken from the Pod's status. If the container was running at that time, it counts
    as lost, as with a kubelet that does not find it: it must not run twice under restartPolicy
    Never.
    """
    entry = pod.shown(name)
    state = entry.get("state") or {}
    # Starts are numbered from 0, so the restart count is the number of the newest start.
    number = int(entry.get("restartCount") or 0)
    record = containers.ContainerRecord(f"{pod.metadata.uid}/{name}/{number}", "")
    if terminated := state.get("terminated") or {}:
        return _recalled(record, terminated)
    if "running" in state:
        return containers.as_lost(record._replace(started_at=wall), wall)
    if last := (entry.get("lastState") or {}).get("terminated"):
        return _recalled(record, last)
    return None


def _recalled(
    record: containers.ContainerRecord, state: Mapping[str, Any]
) -> containers.ContainerRecord:
    return record._replace(
        started_at=_seconds(state.get("startedAt")),
        finished_at=_seconds(state.get("finishedAt")),
        exit_code=int(state.get("exitCode") or 0),
        signal=int(state.get("signal") or 0),
        reason=str(state.get("reason") or ""),
        message=str(state.get("message") or ""),
    )


def _seconds(text: object) -> float:
    try:
        return clock.parse_rfc3339(str(text))
    except ValueError:
        return 0.0
