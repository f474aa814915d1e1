"""What to do next about one Pod: pure decisions from its object and what is known of it here.

Used by the reconciler, which carries them out and asks again whenever something changed. A
`ContainerView` is all that the node remembers of a container. Not the status: that is `statuses`.

The order of containers is the kubelet's (k8s.io/kubernetes pkg/kubelet/kuberuntime,
computePodActions and computeInitContainerActions; sidecars: KEP-753).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kilnwork.controlplane.node import container as containers
from kilnwork.controlplane.node import container_plan, pods
from kilnwork.kit import backoff, clock

RESTARTS = backoff.Backoff(base_s=1.0, max_s=60.0)
"""Waits from the second restart in a row on; the first is at once."""

STEADY_S = 600.0
"""A container that ran so long counts restarts from 0 again (as the kubelet's 10 minutes)."""

UNSEEN_GRACE_S = 1.0
"""What a container gets whose Pod is gone (the kubelet's smallest grace period)."""

SIDECAR_GRACE_S = 2.0
"""What a sidecar gets at least when the others have ended or used up the grace (the kubelet's
minimumGracePeriodInSeconds): it may have a result to hand over."""

MAX_EPHEMERAL_STARTS = 8
"""Started at once: so the result of the first is reported before hundreds more have started."""

DEADLINE = "DeadlineExceeded"


class ContainerView(NamedTuple):
    """What the node knows of one container.

    `last` is the newest start, `before` the one before it. `row` counts ends in a row, `start_at`
    (monotonic) is when the next start may be. `reason` and `message` say why the newest try to
    start came to nothing, empty otherwise. `stop_s` is the grace it was asked to end with.
    `started` and `ready` are what its probes say of it while it runs. `failing`: a probe had it
    ended, so that it starts again whatever its exit code.
    """

    last: containers.ContainerRecord | None = None
    before: containers.ContainerRecord | None = None
    row: int = 0
    start_at: float = 0.0
    reason: str = ""
    message: str = ""
    stop_s: float | None = None
    started: bool = True
    ready: bool = True
    failing: bool = False

    @property
    def running(self) -> bool:
        """True while something of the container is left."""
        return self.last is not None and self.last.exit_code is None


Views = Mapping[str, ContainerView]
"""By the container's name; one that is not there is as a new `ContainerView`."""

UNKNOWN = ContainerView()


class Refuse(NamedTuple):
    """Fail the Pod for good."""

    message: str


class Start(NamedTuple):
    """Start a container for the `number`th time, from 0."""

    container: str
    number: int


class Wait(NamedTuple):
    """A container starts again in so long."""

    container: str
    seconds: float


class Stop(NamedTuple):
    """Ask a container to end, then make it."""

    container: str
    grace_s: float


class Remove(NamedTuple):
    """Nothing of it is left: let the Pod object go."""


class More(NamedTuple):
    """There is more to start: decide again at once."""


Decision = Refuse | Start | Wait | Stop | Remove | More


class Moment(NamedTuple):
    """Now, on both clocks. `leaving_s`: the most grace there is while the node goes down."""

    monotonic: float
    wall: float
    leaving_s: float | None = None


def decide(pod: pods.Pod, views: Views, now: Moment) -> list[Decision]:
    """What to do next; empty when there is nothing to do until something changes."""
    if pod.metadata.deletion_timestamp is not None:
        return _decide_deleted(pod, views, now)
    grace_s = pod.grace_s if now.leaving_s is None else min(pod.grace_s, now.leaving_s)
    if now.leaving_s is not None or pod.final or failure(pod, now.wall):
        return list(_stops(pod, views, grace_s, rest_s=grace_s))
    if refusal := container_plan.refusal(pod):
        return [Refuse(refusal)]
    if over(pod, views):
        return list(_stops(pod, views, grace_s, rest_s=max(SIDECAR_GRACE_S, grace_s)))
    decided, initialised = _initialise(pod, views, now)
    if initialised:
        for container in pod.spec.containers:
            decided += _keep_up(pod, container, views, now)
    return decided + _ephemeral_starts(pod, views, now)


def _ephemeral_starts(pod: pods.Pod, views: Views, now: Moment) -> list[Decision]:
    """Start each once, also before the Pod is initialised: they are there to look into it."""
    names = [container.name for container in pod.ephemeral_containers]
    new = [name for name in names if name not in views]
    waiting = (
        name
        for name in names
        if (view := views.get(name)) is not None
        and view.last is None
        and view.start_at <= now.monotonic
    )
    starts = [Start(name, 0) for name in (*new[:MAX_EPHEMERAL_STARTS], *waiting)]
    return [*starts, More()] if len(new) > MAX_EPHEMERAL_STARTS else [*starts]


def _decide_deleted(pod: pods.Pod, views: Views, now: Moment) -> list[Decision]:
    if any(view.running for view in views.values()):
        ends_at = clock.parse_rfc3339(pod.metadata.deletion_timestamp or "")
        rest_s = max(SIDECAR_GRACE_S, min(pod.grace_s, ends_at - now.wall))
        return list(_stops(pod, views, pod.grace_s, rest_s=min(pod.grace_s, rest_s)))
    done = pod.metadata.deletion_grace_period_seconds == 0
    return [] if done else [Remove()]


def _stops(pod: pods.Pod, views: Views, grace_s: float, *, rest_s: float) -> Iterator[Stop]:
    """Sidecars end when the others have, with `rest_s`; what was asked before is only shortened.

    They do not wait for ephemeral containers, as with the kubelet.
    """
    sidecars = {c.name for c in pod.all_containers if c.sidecar}
    busy = any(_view(views, c.name).running for c in pod.all_containers if not c.sidecar)
    for name, view in views.items():
        wanted_s = rest_s if name in sidecars else grace_s
        if not view.running or (busy and name in sidecars):
            continue
        if view.stop_s is None or wanted_s < view.stop_s:
            yield Stop(name, wanted_s)


# Beginning, keeping up


def _initialise(pod: pods.Pod, views: Views, now: Moment) -> tuple[list[Decision], bool]:
    """What the init containers need, and whether the others may run."""
    decided: list[Decision] = []
    begun = has_begun(pod, views)
    for container in pod.init_containers:
        view = _view(views, container.name)
        if container.sidecar:
            decided += _keep_up(pod, container, views, now)
            if not begun and not (view.running and view.started):
                return decided, False
        elif not begun and not (view.last is not None and view.last.exit_code == 0):
            return decided + _keep_up(pod, container, views, now), False
    return decided, True


def has_begun(pod: pods.Pod, views: Views) -> bool:
    """True once one of the main containers was started: init containers are over then."""
    return any(_view(views, c.name).last is not None for c in pod.spec.containers)


def _keep_up(pod: pods.Pod, container: pods.Container, views: Views, now: Moment) -> list[Decision]:
    """Let a container run, unless it has ended for good."""
    view = _view(views, container.name)
    if view.running:
        failed_probe = view.failing and view.stop_s is None
        return [Stop(container.name, _probe_grace_s(pod, container))] if failed_probe else []
    if view.last is not None and not restarts(pod, container, view):
        return []
    if view.start_at > now.monotonic:
        return [Wait(container.name, view.start_at - now.monotonic)]
    return [Start(container.name, 0 if view.last is None else view.last.number + 1)]


def _probe_grace_s(pod: pods.Pod, container: pods.Container) -> float:
    for probe in (container.liveness_probe, container.startup_probe):
        if probe is not None and probe.termination_grace_period_seconds is not None:
            return float(probe.termination_grace_period_seconds)
    return pod.grace_s


def restarts(pod: pods.Pod, container: pods.Container, view: ContainerView) -> bool:
    """True if a container that has ended is started again."""
    if view.last is None or container.sidecar:
        return True
    policy = pod.spec.restart_policy
    if view.failing:
        return policy != "Never"
    failed = view.last.exit_code != 0
    if container in pod.init_containers:
        return failed and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and failed)


def over(pod: pods.Pod, views: Views) -> bool:
    """True when no container will run any more but sidecars, which are to end now."""
    for container in pod.init_containers:
        view = _view(views, container.name)
        if not container.sidecar and _ended_for_good(pod, container, view):
            assert view.last is not None  # noqa: S101 - for the type checker
            if view.last.exit_code != 0:
                return True
    return all(_ended_for_good(pod, c, _view(views, c.name)) for c in pod.spec.containers)


def _ended_for_good(pod: pods.Pod, container: pods.Container, view: ContainerView) -> bool:
    ended = view.last is not None and not view.running
    return ended and not restarts(pod, container, view)


def failure(pod: pods.Pod, wall: float) -> tuple[str, str] | None:
    """Reason and message if the Pod has to fail although its containers could go on."""
    left_s = deadline_left_s(pod, wall)
    if left_s is None or left_s > 0:
        return None
    return DEADLINE, "Pod was active on the node longer than the specified deadline"


def deadline_left_s(pod: pods.Pod, wall: float) -> float | None:
    """Seconds until `activeDeadlineSeconds` are over; None for a Pod without."""
    limit_s, start = pod.spec.active_deadline_seconds, pod.status.get("startTime")
    if limit_s is None or not start:
        return None
    return clock.parse_rfc3339(str(start)) + limit_s - wall


def _view(views: Views, name: str) -> ContainerView:
    return views.get(name, UNKNOWN)


# What has happened


def ended(view: ContainerView, record: containers.ContainerRecord, *, now: float) -> ContainerView:
    """`view` after the end of its newest container: when the next start may be."""
    lasted = record.finished_at - record.started_at if record.started_at else 0.0
    row = 1 if lasted >= STEADY_S else view.row + 1
    return view._replace(last=record, row=row, start_at=now + RESTARTS.delay_s(row - 1))


def recall(pod: pods.Pod, name: str, *, wall: float) -> containers.ContainerRecord | None:
    """The newest start of a container that no shim remembers, from the Pod's status; None: none.

    What was running then is taken for lost, as by a kubelet that finds no container: it must not
    run twice under restartPolicy Never.
    """
    shown = pod.shown(name)
    state = shown.get("state") or {}
    number = int(shown.get("restartCount") or 0)
    record = containers.ContainerRecord(f"{pod.metadata.uid}/{name}/{number}", "")
    if terminated := state.get("terminated") or {}:
        return _recalled(record, terminated)
    if "running" in state:
        return containers.lost(record._replace(started_at=wall), wall)
    if last := (shown.get("lastState") or {}).get("terminated"):
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
