"""What the TaskCluster controller decides, case by case."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, pod, reasons, task_cluster
from kilnwork.controllers import worker_pods
from kilnwork.controllers.task_cluster import deletion, plan, status
from kilnwork.dispatch import model
from kilnwork.kit import clock

SETTINGS = worker_pods.WorkerPodSettings(
    channel="unix:/c.sock", worker_command=("worker",), worker_image="w:1"
)
NOW = 1_700_000_000.0


def _cluster(**spec: Any) -> task_cluster.TaskCluster:
    return task_cluster.TaskCluster(
        metadata=meta.ObjectMeta(name="c", namespace="ns", uid="u-1", generation=1),
        spec=task_cluster.TaskClusterSpec(**spec),
    )


def _digest(cluster: task_cluster.TaskCluster) -> str:
    made = worker_pods.template(cluster, SETTINGS, secret_uid="s-1")
    return worker_pods.digest_of(made)


def _pod(name: str, *, digest: str = "", deleting: bool = False, phase: str = "Running") -> pod.Pod:
    metadata = meta.ObjectMeta(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        annotations={worker_pods.TEMPLATE_ANNOTATION: digest or _digest(_cluster())},
        deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
    )
    return pod.Pod(metadata=metadata, status=pod.PodStatus(phase=phase))


def _worker(name: str, *, holding: int = 0, ready: bool = True) -> model.WorkerView:
    return model.WorkerView(
        name=name,
        pod_uid=f"uid-{name}",
        node="n",
        slots=2,
        busy=holding,
        ready=ready,
        holding=holding,
    )


def _view(*workers: model.WorkerView, queued: int = 0, drained: str = "") -> model.ClusterView:
    """`drained`: names of Pods."""
    return model.ClusterView(
        namespace="ns",
        cluster="c",
        workers=workers,
        queued=queued,
        draining=frozenset(f"uid-{name}" for name in drained.split()),
    )


def _decide(cluster: task_cluster.TaskCluster | None, **facts: Any) -> plan.Plan:
    values: dict[str, Any] = {"cluster": cluster, "secret_uid": "s-1", "now": NOW}
    return plan.decide(plan.Facts(**{**values, **facts}), SETTINGS)


def _made(decided: plan.Plan) -> list[str]:
    return [p["metadata"]["name"] for p in decided.create]


def _removed(decided: plan.Plan) -> list[str]:
    return [r.name for r in decided.remove]


def _drained(decided: plan.Plan) -> str:
    assert decided.drain is not None
    return " ".join(sorted(uid.removeprefix("uid-") for uid in decided.drain))


def _condition(decided: plan.Plan, kind: str) -> meta.Condition:
    assert decided.status is not None
    return next(c for c in decided.status.conditions if c.type == kind)


def test_secret_is_created_before_pods() -> None:
    decided = _decide(_cluster(replicas=2), secret_uid="")
    assert decided.make_secret
    assert decided.create == ()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"template": {"spec": {"containers": "worker"}}},
            "spec.template is no Pod template: Expected `array | null`, got `str`",
        ),
        ({"template": {"metadata": {"labels": {"a": 1}}}}, "spec.template is no Pod template"),
        ({"template": {"spec": {"containers": [{"env": ["A=b"]}]}}}, "is no Pod template"),
        ({"service_account_name": "A_b"}, "spec.serviceAccountName"),
    ],
)
def test_invalid_template_is_reported_and_old_pods_continue(
    spec: dict[str, Any], message: str
) -> None:
    """A real API server leaves the template open; the Pods of the spec before go on."""
    decided = _decide(_cluster(**spec), pods=(_pod("c-0"),))
    assert (decided.create, decided.remove, decided.make_secret) == ((), (), False)
    assert _condition(decided, "Available").reason == "InvalidSpec"
    assert message in _condition(decided, "Available").message


def test_missing_pods_are_created_by_number() -> None:
    decided = _decide(_cluster(replicas=3), pods=(_pod("c-1"),))
    assert _made(decided) == ["c-0", "c-2"]
    assert _removed(decided) == []


def test_complete_cluster_needs_no_change() -> None:
    decided = _decide(_cluster(replicas=2), pods=(_pod("c-0"), _pod("c-1")))
    assert (decided.create, decided.remove, decided.make_secret) == ((), (), False)


def test_surplus_workers_are_drained_then_deleted() -> None:
    pods = (_pod("c-0"), _pod("c-1"), _pod("old-0"))
    decided = _decide(_cluster(replicas=1), pods=pods)
    assert (_drained(decided), _removed(decided)) == ("c-1 old-0", [])
    drained = _decide(_cluster(replicas=1), pods=pods, view=_view(drained="c-1 old-0"))
    assert (_drained(drained), sorted(_removed(drained))) == ("c-1 old-0", ["c-1", "old-0"])


def test_idle_workers_are_removed_first_and_busy_ones_when_empty() -> None:
    pods = tuple(_pod(f"c-{n}") for n in range(4))
    workers = [_worker("c-0"), _worker("c-1", holding=1), _worker("c-2"), _worker("c-3", holding=2)]
    one = _decide(_cluster(replicas=3), pods=pods, view=_view(*workers))
    assert (_drained(one), _removed(one)) == ("c-2", [])
    three = _decide(_cluster(replicas=1), pods=pods, view=_view(*workers, drained="c-0 c-1 c-2"))
    assert (_drained(three), sorted(_removed(three))) == ("c-0 c-1 c-2", ["c-0", "c-2"])
    shown = _condition(
        _decide(
            _cluster(replicas=1),
            pods=pods,
            view=_view(
                msgspec.structs.replace(workers[3], draining=True), _worker("c-0"), drained="c-3"
            ),
        ),
        "Ready",
    )
    assert shown.message == "all workers are connected; worker c-3 goes when its 2 tasks have ended"


def test_draining_worker_stays_chosen_unless_another_is_idle() -> None:
    pods = (_pod("c-0"), _pod("c-1"), _pod("c-2"))
    busy = [_worker("c-0", holding=2), _worker("c-1", holding=1), _worker("c-2", holding=1)]
    same = _decide(_cluster(replicas=2), pods=pods, view=_view(*busy, drained="c-0"))
    assert (_drained(same), _removed(same)) == ("c-0", [])
    idle = [busy[0], _worker("c-1"), busy[2]]
    other = _decide(_cluster(replicas=2), pods=pods, view=_view(*idle, drained="c-0"))
    assert (_drained(other), _removed(other)) == ("c-1", [])


def test_drain_is_cancelled_when_workers_are_wanted_again() -> None:
    decided = _decide(_cluster(), pods=(_pod("c-0"),), view=_view(_worker("c-0"), drained="c-0"))
    assert (_drained(decided), _removed(decided)) == ("", [])


def test_drained_workers_stay_drained_until_gone() -> None:
    pods = (_pod("c-0"), _pod("c-1", deleting=True), _pod("c-2", deleting=True))
    decided = _decide(_cluster(), pods=pods, view=_view(_worker("c-0"), drained="c-1"))
    assert _drained(decided) == "c-1"


def test_ended_pod_is_deleted_and_its_worker_reported() -> None:
    view = _view(_worker("c-0", holding=1, ready=False))
    decided = _decide(_cluster(), pods=(_pod("c-0", phase="Failed"),), view=view)
    assert [(r.name, r.grace_s) for r in decided.remove] == [("c-0", 0)]
    assert decided.gone == (plan.Gone("uid-c-0", "Pod c-0 failed: no reason given"),)
    assert decided.create == ()


def test_pod_refused_by_its_node_is_kept_for_a_moment() -> None:
    """Else Pods would be made and deleted as fast as the node refuses them."""
    failed = _pod("c-0", phase="Failed")
    created = clock.rfc3339(NOW - 2)
    young = msgspec.structs.replace(
        failed, metadata=msgspec.structs.replace(failed.metadata, creation_timestamp=created)
    )
    decided = _decide(_cluster(), pods=(young,))
    assert (decided.remove, decided.again_s) == ((), plan.YOUNG_S - 2)
    later = _decide(_cluster(), pods=(young,), now=NOW + 3)
    assert _removed(later) == ["c-0"]


def test_terminating_pod_is_replaced_under_another_name() -> None:
    """That of a lost node stays as long as the Node does."""
    decided = _decide(_cluster(), pods=(_pod("c-0", deleting=True),))
    assert (_made(decided), _removed(decided)) == (["c-1"], [])
    again = _decide(_cluster(), pods=(_pod("c-0", deleting=True), _pod("c-1")))
    assert (_made(again), _removed(again)) == ([], [])


def test_pod_of_a_worker_without_pod_is_checked() -> None:
    lost = _worker("c-1", ready=False)
    decided = _decide(_cluster(), pods=(_pod("c-0"),), view=_view(_worker("c-0"), lost))
    assert decided.missing == (lost,)


def test_idle_outdated_pods_are_replaced_one_at_a_time() -> None:
    cluster = _cluster(replicas=3, slots_per_worker=2)
    pods = (_pod("c-0"), _pod("c-1"), _pod("c-2", digest=_digest(cluster)))
    workers = (_worker("c-0", holding=1), _worker("c-1"), _worker("c-2"))
    chosen = _decide(cluster, pods=pods, view=_view(*workers))
    assert (_drained(chosen), _removed(chosen)) == ("c-1", [])
    assert _removed(_decide(cluster, pods=pods, view=_view(*workers, drained="c-1"))) == ["c-1"]
    going = (pods[0], _pod("c-1", deleting=True), pods[2])
    replaced = _decide(cluster, pods=going, view=_view(*workers, drained="c-1"))
    assert (_made(replaced), _removed(replaced)) == (["c-3"], [])


def test_outdated_pods_are_kept_while_a_new_worker_is_not_connected() -> None:
    """A template from which no worker starts ends one worker, not all of them."""
    cluster = _cluster(replicas=2, slots_per_worker=2)
    pods = (_pod("c-0"), _pod("c-1", digest=_digest(cluster)))
    view = _view(_worker("c-0"), drained="c-0")
    stays = _decide(cluster, pods=pods, view=view)
    assert (_drained(stays), _removed(stays)) == ("", [])


def test_worker_not_reconnected_since_a_restart_is_not_idle() -> None:
    cluster = _cluster(slots_per_worker=2)
    view = _view(_worker("c-0", holding=1, ready=False), drained="c-0")
    decided = _decide(cluster, pods=(_pod("c-0"),), view=view)
    assert (_drained(decided), _removed(decided)) == ("", [])


def test_missing_service_account_prevents_pods_and_is_named() -> None:
    decided = _decide(_cluster(service_account_name="sa"), account_exists=False)
    assert decided.create == ()
    available = _condition(decided, "Available")
    assert available.reason == "ServiceAccountMissing"
    assert available.message == "ServiceAccount sa does not exist in namespace ns"


def _restarting(name: str, *, running: bool) -> pod.Pod:
    """A Pod whose container has ended once, and runs again or waits for that."""
    ended = pod.Terminated(exit_code=137, reason="OOMKilled", finished_at="2026-01-01T00:00:00Z")
    now = pod.ContainerState(running={}) if running else pod.ContainerState(waiting=pod.Waiting())
    container = pod.ContainerStatus(
        name="worker", state=now, last_state=pod.ContainerState(terminated=ended)
    )
    found = _pod(name)
    status = msgspec.structs.replace(found.status, container_statuses=(container,))
    return msgspec.structs.replace(found, status=status)


def test_worker_whose_container_waits_for_its_restart_is_gone() -> None:
    silent, linked = _view(_worker("c-0", ready=False)), _view(_worker("c-0"))
    waits, runs = _restarting("c-0", running=False), _restarting("c-0", running=True)
    decided = _decide(_cluster(), pods=(waits,), view=silent)
    assert decided.gone == (plan.Gone("uid-c-0", "OOMKilled", 1767225600.0),)
    assert _decide(_cluster(), pods=(waits,), view=linked).gone == ()
    assert _decide(_cluster(), pods=(runs,), view=silent).gone == ()


def test_deleted_cluster_is_closed_and_its_workers_are_checked() -> None:
    assert _decide(None) == plan.Plan(close=True)
    worker = _worker("c-0")
    assert _decide(None, view=_view(worker)) == plan.Plan(close=True, missing=(worker,))


def test_cluster_being_deleted_is_closed_and_creates_nothing() -> None:
    metadata = msgspec.structs.replace(
        _cluster().metadata, deletion_timestamp="2026-01-01T00:00:00Z"
    )
    leaving = msgspec.structs.replace(_cluster(), metadata=metadata)
    decided = _decide(leaving, secret_uid="")
    assert decided.close
    assert not decided.make_secret


DELETED = clock.rfc3339(NOW - 10)


def _leaving(*finalizers: str, **spec: Any) -> task_cluster.TaskCluster:
    cluster = _cluster(**spec)
    metadata = msgspec.structs.replace(
        cluster.metadata, deletion_timestamp=DELETED, finalizers=finalizers
    )
    return msgspec.structs.replace(cluster, metadata=metadata)


def _held(**spec: Any) -> task_cluster.TaskCluster:
    cluster = _cluster(**spec)
    metadata = msgspec.structs.replace(cluster.metadata, finalizers=(deletion.FINALIZER,))
    return msgspec.structs.replace(cluster, metadata=metadata)


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (None, None),
        (_view(_worker("c-0")), None),
        (_view(_worker("c-0", holding=1)), True),
        (_view(_worker("c-0", holding=1, ready=False)), True),
        (_view(queued=1), True),
    ],
)
def test_finalizer_is_set_when_there_is_work(
    view: model.ClusterView | None, *, wanted: bool
) -> None:
    assert _decide(_cluster(), view=view).finalizer is wanted
    assert _decide(_cluster(drain_seconds=0), view=view).finalizer is None


def test_finalizer_is_removed_after_a_while_without_work() -> None:
    idle = _view(_worker("c-0"))
    kept = _decide(_held(), pods=(_pod("c-0"),), view=idle, worked=NOW - 10)
    assert (kept.finalizer, kept.again_s) == (None, deletion.IDLE_S - 10)
    assert _decide(_held(), view=idle, worked=NOW - deletion.IDLE_S).finalizer is False
    busy = _view(_worker("c-0", holding=1))
    assert _decide(_held(), view=busy, worked=NOW).finalizer is None
    assert _decide(_held(drain_seconds=0), view=busy, worked=NOW).finalizer is False


def test_deleted_cluster_lets_running_tasks_finish() -> None:
    view = _view(_worker("c-0", holding=1), _worker("c-1"), queued=3)
    pods = (_pod("c-0"), _pod("c-1"))
    decided = _decide(_leaving(deletion.FINALIZER, replicas=2), pods=pods, view=view)
    assert (decided.close, decided.close_waiting, decided.finalizer) == (False, True, None)
    assert (_drained(decided), decided.remove, decided.create) == ("c-0 c-1", (), ())
    available = _condition(decided, "Available")
    assert available.reason == "Draining"
    until = clock.rfc3339(NOW + 290)
    assert f"1 task ends first, or at {until} at the latest" in available.message


@pytest.mark.parametrize(
    ("view", "now"),
    [
        (_view(_worker("c-0")), NOW),
        (_view(_worker("c-0", holding=1)), NOW + 290),
        (_view(_worker("c-0"), queued=5), NOW),
        (None, NOW),
    ],
)
def test_deleted_cluster_is_closed_when_empty_or_out_of_time(
    view: model.ClusterView | None, now: float
) -> None:
    leaving = _leaving(deletion.FINALIZER)
    decided = _decide(leaving, pods=(_pod("c-0"),), view=view, now=now)
    assert (decided.close, decided.finalizer) == (True, False)


def test_deleted_cluster_with_foreign_finalizers_is_closed() -> None:
    view = _view(_worker("c-0", holding=1))
    decided = _decide(_leaving("example.com/other"), pods=(_pod("c-0"),), view=view)
    assert (decided.close, decided.finalizer) == (True, None)


def test_refusal_is_shown_as_the_reason() -> None:
    refusal = status.CreationRefusal(reasons.ClusterReason.POD_NAME_TAKEN, "Pod c-0 exists")
    decided = _decide(_cluster(), refusal=refusal)
    assert _condition(decided, "Ready").reason == "PodNameTaken"


def test_status_counts_pods_workers_and_slots() -> None:
    pods = (_pod("c-0"), _pod("c-1"), _pod("c-2", deleting=True))
    view = _view(_worker("c-0", holding=1), _worker("c-1", ready=False), queued=4)
    decided = _decide(_cluster(replicas=3), pods=pods, view=view)
    shown = decided.status
    assert shown is not None
    assert (shown.replicas, shown.ready_replicas, shown.queued) == (2, 1, 4)
    assert shown.slots == task_cluster.Slots(total=2, busy=1)
    assert _condition(decided, "Available").status == "True"
    assert _condition(decided, "Ready").status == "False"


def test_secret_with_another_ca_is_updated() -> None:
    settings = msgspec.structs.replace(SETTINGS, channel="tls://m:7443", ca=b"PEM")
    facts = plan.Facts(cluster=_cluster(replicas=0), secret_uid="s-1", secret_ca="b3RoZXI=")
    assert plan.decide(facts, settings).mend_secret == {"ca.crt": "UEVN"}
    mended = msgspec.structs.replace(facts, secret_ca="UEVN")
    assert plan.decide(mended, settings).mend_secret == {}
    assert plan.decide(facts, SETTINGS).mend_secret == {}


def test_used_up_pods_are_drained_and_replaced_immediately() -> None:
    """Even all of them, since others take their places before they have gone."""
    pods = (_pod("c-0"), _pod("c-1"))
    workers = (_worker("c-0", holding=1), _worker("c-1"))
    used_up = frozenset({"uid-c-0", "uid-c-1"})
    cluster = _cluster(replicas=2)
    decided = _decide(cluster, pods=pods, view=_view(*workers), used_up=used_up)
    assert _drained(decided) == "c-0 c-1"
    assert (_made(decided), _removed(decided)) == (["c-2", "c-3"], [])
    more = (_pod("c-2"), _pod("c-3"))
    view = _view(*workers, drained="c-0 c-1")
    decided = _decide(cluster, pods=(*pods, *more), view=view, used_up=used_up)
    assert (_made(decided), _removed(decided)) == ([], ["c-1"])


def _busy(count: int) -> tuple[model.WorkerView, ...]:
    return tuple(_worker(f"c-{n}", holding=2) for n in range(count))


def _strategy(**update: Any) -> task_cluster.Strategy:
    return task_cluster.Strategy(rolling_update=task_cluster.RollingUpdate(**update))


@pytest.mark.parametrize(
    ("update", "drained", "made"),
    [
        ({}, "c-3", []),
        ({"max_unavailable": 2}, "c-2 c-3", []),
        ({"max_unavailable": "50%"}, "c-2 c-3", []),
        ({"max_unavailable": 0}, "c-3", []),
        ({"max_unavailable": 0, "max_surge": 1}, "", ["c-4"]),
        ({"max_unavailable": "20%", "max_surge": "20%"}, "", ["c-4"]),
        ({"max_unavailable": 1, "max_surge": 2}, "c-3", ["c-4", "c-5"]),
        ({"max_unavailable": 4}, "c-0 c-1 c-2 c-3", ["c-4"]),
    ],
)
def test_busy_outdated_workers_drain_within_the_bounds(
    update: dict[str, Any], drained: str, made: list[str]
) -> None:
    cluster = _cluster(replicas=4, slots_per_worker=2, strategy=_strategy(**update))
    pods = tuple(_pod(f"c-{n}") for n in range(4))
    decided = _decide(cluster, pods=pods, view=_view(*_busy(4), queued=100))
    assert (_drained(decided), _made(decided), _removed(decided)) == (drained, made, [])
    assert decided.status is not None
    assert (decided.status.updated_replicas, decided.status.outdated_replicas) == (0, 4)


def test_unconnected_workers_count_as_unavailable() -> None:
    """A template that no worker can start from ends as many as the bound says."""
    cluster = _cluster(replicas=4, slots_per_worker=2, strategy=_strategy(max_unavailable=2))
    new = (_pod("c-4", digest=_digest(cluster)), _pod("c-5", digest=_digest(cluster)))
    pods = (_pod("c-0"), _pod("c-1"), *new)
    stays = _decide(cluster, pods=pods, view=_view(*_busy(2)))
    assert (_drained(stays), _removed(stays), _made(stays)) == ("", [], [])
    one = _decide(cluster, pods=pods, view=_view(*_busy(2), _worker("c-4", holding=2)))
    assert _drained(one) == "c-1"


def test_last_worker_is_drained_only_with_a_new_one() -> None:
    """What it runs may wait for tasks that only another worker can take."""
    cluster = _cluster(replicas=1, slots_per_worker=2)
    drains = _decide(cluster, pods=(_pod("c-0"),), view=_view(*_busy(1)))
    assert (_drained(drains), _made(drains)) == ("c-0", ["c-1"])
    pods = (_pod("c-0"), _pod("c-1", digest=_digest(cluster)))
    empty = _decide(cluster, pods=pods, view=_view(_worker("c-0"), drained="c-0"))
    assert (_drained(empty), _made(empty), _removed(empty)) == ("c-0", [], ["c-0"])


def test_worker_with_waiting_tasks_is_kept_until_another_exists() -> None:
    cluster = _cluster(replicas=1, slots_per_worker=2)
    waits = msgspec.structs.replace(_worker("c-0", holding=1), busy=0)
    pods = (_pod("c-0"), _pod("c-1", digest=_digest(cluster)))
    alone = _decide(cluster, pods=pods, view=_view(waits, drained="c-0"))
    assert _drained(alone) == ""
    with_new = _decide(cluster, pods=pods, view=_view(waits, _worker("c-1")))
    assert _drained(with_new) == "c-0"


@pytest.mark.parametrize("share", ["many", "101%", "-1%", -1, 1001, True, 1.5, "", None])
def test_invalid_rollout_bounds_are_reported(share: object) -> None:
    decided = _decide(_cluster(strategy=_strategy(max_surge=share)), pods=(_pod("c-0"),))
    message = _condition(decided, "Ready").message
    assert message.startswith("spec.strategy.rollingUpdate.maxSurge must be a number from 0")
    assert (decided.create, decided.remove) == ((), ())
