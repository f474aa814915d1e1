"""Sentence about a TaskCluster."""

from typing import Any

from kilnwork.cli import task_cluster_sentence


def cluster(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": {"replicas": 3}, "status": status}


READY = {"type": "Ready", "reason": "AllConnected", "message": "all are there"}


def test_new_cluster_is_unprocessed() -> None:
    assert task_cluster_sentence.sentence(cluster()) == "TaskCluster c has not been processed yet."


def test_sentence_counts_workers_slots_and_tasks() -> None:
    found = cluster(
        conditions=[READY], readyReplicas=2, slots={"busy": 1, "total": 8}, queued=4, replicas=3
    )
    assert task_cluster_sentence.sentence(found) == (
        "TaskCluster c: 2 of 3 workers connected, 1 of 8 slots busy, 4 tasks queued "
        "(AllConnected): all are there."
    )


def test_outdated_workers_and_other_conditions_are_named() -> None:
    other = {"type": "Draining", "message": "waits for 1 worker"}
    text = task_cluster_sentence.sentence(
        cluster(conditions=[READY, other, {"type": "Available"}], outdatedReplicas=1, replicas=3)
    )
    assert ", 1 of 3 workers outdated (" in text
    assert text.endswith("; Draining: waits for 1 worker.")
    assert "Available" not in text
