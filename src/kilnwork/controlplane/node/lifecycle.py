"""What to do next about one Pod: pure decisions from its object and what is known of it here.

Used by `local`, which carries them out and asks again whenever something changed. `View` is all
that the node remembers of a Pod. Not the status: that is `statuses`.
"""

from typing import NamedTuple

from kilnwork.controlplane.node import container, pods, recipe
from kilnwork.kit import backoff

RESTARTS = backoff.Backoff(base_s=1.0, max_s=60.0)
"""Waits from the second restart in a row on; the first is at once."""

STEADY_S = 600.0
"""A container that ran so long starts counting restarts anew (as the kubelet's 10 minutes)."""

UNSEEN_GRACE_S = 1.0
"""What a container gets whose Pod is gone (the kubelet's smallest grace period)."""


class View(NamedTuple):
    """What the node knows of one Pod's container.

    `last` is the newest start, `before` the one before it. `row` counts ends in a row, `start_at`
    (monotonic) is when the next start may be. `reason` and `message` say why the newest try to
    start came to nothing, empty otherwise. `stop_s` is the grace it was asked to end with.
    """

    last: container.Record | None = None
    before: container.Record | None = None
    row: int = 0
    start_at: float = 0.0
    reason: str = ""
    message: str = ""
    stop_s: float | None = None

    @property
    def running(self) -> bool:
        """True while something of the container is left."""
        return self.last is not None and self.last.exit_code is None


class Refuse(NamedTuple):
    """Fail the Pod for good."""

    message: str


class Start(NamedTuple):
    """Start the container for the `number`th time, from 0."""

    number: int


class Wait(NamedTuple):
    """Nothing to do for so long."""

    seconds: float


class Stop(NamedTuple):
    """Ask the container to end, then make it."""

    grace_s: float


class Remove(NamedTuple):
    """Nothing of it is left: let the Pod object go."""


class Rest(NamedTuple):
    """Nothing to do until something changes."""


Decision = Refuse | Start | Wait | Stop | Remove | Rest


def decide(pod: pods.Pod, view: View, *, now: float, leaving_s: float | None = None) -> Decision:
    """What to do next. `now` is monotonic; `leaving_s`: the most grace while the node goes down."""
    if pod.metadata.deletion_timestamp is not None:
        return _decide_deleted(pod, view)
    if view.running:
        if leaving_s is not None and view.stop_s is None:
            return Stop(min(pod.grace_s, leaving_s))
        return Rest()
    if pod.final or leaving_s is not None:
        return Rest()
    if refusal := recipe.refusal(pod):
        return Refuse(refusal)
    if view.last is not None and not restarts(pod, view.last):
        return Rest()
    if view.start_at > now:
        return Wait(view.start_at - now)
    return Start(next_number(pod, view))


def _decide_deleted(pod: pods.Pod, view: View) -> Decision:
    if not view.running:
        done = pod.metadata.deletion_grace_period_seconds == 0
        return Rest() if done else Remove()
    if view.stop_s is None or pod.grace_s < view.stop_s:
        return Stop(pod.grace_s)
    return Rest()


def restarts(pod: pods.Pod, last: container.Record) -> bool:
    """True if the container is started again after this end."""
    policy = pod.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and last.exit_code != 0)


def next_number(pod: pods.Pod, view: View) -> int:
    """The number of the next start, also when the shim's records were lost."""
    if view.last is not None:
        return view.last.number + 1
    known = pod.status.get("containerStatuses") or ()
    counted = [int(s.get("restartCount") or 0) + 1 for s in known if _was_started(s)]
    return max(counted, default=0)


def _was_started(status: dict[str, object]) -> bool:
    state = status.get("state") or {}
    waiting = isinstance(state, dict) and "waiting" in state
    return not waiting or bool(status.get("lastState"))


def ended(view: View, record: container.Record, *, now: float) -> View:
    """`view` after the end of its newest container: when the next start may be."""
    lasted = record.finished_at - record.started_at if record.started_at else 0.0
    row = 1 if lasted >= STEADY_S else view.row + 1
    return view._replace(last=record, row=row, start_at=now + RESTARTS.delay_s(row - 1))
