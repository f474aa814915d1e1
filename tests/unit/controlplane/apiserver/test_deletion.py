"""What a DELETE comes to, decided without a store."""

from typing import Any

import pytest

from kilnwork.api import api_resources, kinds, meta
from kilnwork.controlplane.apiserver import deletion, requests, statuses, write_types
from kilnwork.kit import clock
from support import served_kinds

NOW = 1_700_000_000.0
POD = write_types.target_of(api_resources.PODS, "default", "p")
TASK = write_types.WriteTarget(served_kinds.kind_of(kinds.TASKS), "default", "t")


def pod(*, phase: str = "Running", node: str = "n", **metadata: Any) -> meta.JsonObject:
    return {
        "metadata": {"name": "p", "uid": "u", **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }


def decide(
    place: write_types.WriteTarget, obj: meta.JsonObject, **asked: Any
) -> deletion.DeletionDecision:
    return deletion.decide(place, obj, deletion.DeleteOptions(**asked), NOW)


@pytest.mark.parametrize(
    ("obj", "grace"),
    [
        (pod(node=""), None),
        (pod(phase="Succeeded"), None),
        (pod(phase="Failed"), 60),
        (pod(), 0),
    ],
)
def test_pod_without_running_containers_is_removed_at_once(
    obj: meta.JsonObject, grace: int | None
) -> None:
    assert decide(POD, obj, grace_s=grace).remove


def test_running_pod_gets_its_grace_period() -> None:
    verdict = decide(POD, pod())
    assert verdict.marked is not None
    found = verdict.marked["metadata"]
    assert found["deletionGracePeriodSeconds"] == 30
    assert found["deletionTimestamp"] == clock.rfc3339(NOW + 30)


def being_deleted(**more: Any) -> meta.JsonObject:
    """A Pod that was deleted 10 s ago with a grace period of 60 s; its own would be 30 s."""
    ends_at = clock.rfc3339(NOW + 50)
    return pod(deletionTimestamp=ends_at, deletionGracePeriodSeconds=60, **more)


@pytest.mark.parametrize("grace_s", [60, 90, None])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_second_delete_without_shorter_grace_changes_nothing(
    grace_s: int | None, phase: str
) -> None:
    for propagation in ("", "Foreground"):
        verdict = decide(POD, being_deleted(phase=phase), grace_s=grace_s, propagation=propagation)
        assert verdict == deletion.DeletionDecision()


def test_shorter_grace_period_counts_from_the_first_delete() -> None:
    verdict = decide(POD, being_deleted(), grace_s=5)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["deletionGracePeriodSeconds"] == 5
    assert verdict.marked["metadata"]["deletionTimestamp"] == clock.rfc3339(NOW - 5)
    assert decide(POD, being_deleted(), grace_s=0).remove


def test_negative_grace_period_is_one_second() -> None:
    asked = deletion.parse_options(
        {"gracePeriodSeconds": -5}, requests.Query({}), write_types.WriteContext()
    )
    assert asked.grace_s == 1
    hasty = pod()
    hasty["spec"]["terminationGracePeriodSeconds"] = -5
    verdict = decide(POD, hasty)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("propagation", "before", "after"),
    [
        ("Foreground", ["x"], ["x", "foregroundDeletion"]),
        ("Orphan", [], ["orphan"]),
        ("Orphan", ["foregroundDeletion"], ["orphan"]),
        ("", ["orphan"], ["orphan"]),
    ],
)
def test_propagation_becomes_a_finalizer(
    propagation: str, before: list[str], after: list[str]
) -> None:
    obj = {"metadata": {"name": "t", "uid": "u", "generation": 4, "finalizers": before}}
    verdict = decide(TASK, obj, propagation=propagation)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["finalizers"] == after
    assert verdict.marked["metadata"]["generation"] == 5


def test_background_propagation_removes_the_finalizer() -> None:
    obj = {"metadata": {"name": "t", "uid": "u", "finalizers": ["foregroundDeletion"]}}
    assert decide(TASK, obj, propagation="Background") == deletion.DeletionDecision(remove=True)


def test_delete_options_come_from_body_or_query() -> None:
    query = requests.Query({"gracePeriodSeconds": "7", "propagationPolicy": "Orphan"})
    found = deletion.parse_options({}, query, write_types.WriteContext())
    assert (found.grace_s, found.propagation) == (7, "Orphan")
    body = {"gracePeriodSeconds": 3, "orphanDependents": False, "dryRun": ["All"]}
    found = deletion.parse_options(body, requests.Query({}), write_types.WriteContext())
    assert (found.grace_s, found.propagation, found.options.dry_run) == (3, "Background", True)
    with pytest.raises(statuses.StatusError, match="propagationPolicy"):
        deletion.parse_options(
            {"propagationPolicy": "Perhaps"}, requests.Query({}), write_types.WriteContext()
        )


@pytest.mark.parametrize(
    "document",
    [
        {"gracePeriodSeconds": "3"},
        {"gracePeriodSeconds": True},
        {"preconditions": "uid"},
        {"preconditions": {"uid": ["u"]}},
        {"preconditions": {"resourceVersion": 7}},
        {"orphanDependents": "no"},
        {"dryRun": True},
    ],
)
def test_unreadable_precondition_is_an_error(document: meta.JsonObject) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        deletion.parse_options(document, requests.Query({}), write_types.WriteContext())
    assert caught.value.code == 500


@pytest.mark.parametrize("seconds", [10**12, 10**18])
def test_huge_grace_period_is_capped(seconds: int) -> None:
    asked = deletion.parse_options(
        {"gracePeriodSeconds": seconds}, requests.Query({}), write_types.WriteContext()
    )
    verdict = deletion.decide(POD, pod(), asked, NOW)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["deletionGracePeriodSeconds"] == deletion.MAX_GRACE_S
    patient = pod()
    patient["spec"]["terminationGracePeriodSeconds"] = seconds
    assert decide(POD, patient).marked is not None
