"""`kiln scale`: only TaskClusters have workers."""

import shlex
from typing import Any

import pytest

from kilnwork.cli import errors, exits
from kilnwork.cli.commands import scale
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a", "--replicas"),
        ("--replicas -1", "--replicas"),
        ("--replicas many", "--replicas"),
        ("--replicas 1 --timeout soon", "not a duration"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("scale", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "--replicas 0",
        "a --replicas 1",
        "taskcluster/a --replicas 1 --wait --timeout 1s",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("scale", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err


@pytest.mark.parametrize("word", ["a", "taskcluster/a", "taskclusters/a"])
def test_cluster_may_be_named_with_its_kind(word: str) -> None:
    assert scale._plain(word) == "a"


@pytest.mark.parametrize("word", ["task/a", "taskcluster/", "job/a"])
def test_only_clusters_have_workers(word: str) -> None:
    with pytest.raises(errors.InvalidInput, match="only a TaskCluster has workers"):
        scale._plain(word)


def cluster(**status: Any) -> dict[str, Any]:
    return {"spec": {"replicas": 2}, "metadata": {"generation": 5}, "status": status}


@pytest.mark.parametrize(
    ("status", "is_reached"),
    [
        ({"observedGeneration": 5, "replicas": 2, "readyReplicas": 2}, True),
        ({"observedGeneration": 4, "replicas": 2, "readyReplicas": 2}, False),
        ({"observedGeneration": 5, "replicas": 3, "readyReplicas": 2}, False),
        ({"observedGeneration": 5, "replicas": 2, "readyReplicas": 1}, False),
        ({"observedGeneration": 5, "replicas": 2}, False),
    ],
)
def test_number_is_reached_when_all_are_connected_and_none_is_extra(
    status: dict[str, int],
    is_reached: bool,  # noqa: FBT001
) -> None:
    assert scale._has(2, "a")(cluster(**status)) is is_reached


def test_wait_fails_when_the_cluster_is_deleted_or_scaled_again() -> None:
    with pytest.raises(errors.Missing, match="taskcluster/a was deleted"):
        scale._has(2, "a")(None)
    with pytest.raises(errors.CommandError, match="another client has asked for 2 workers"):
        scale._has(3, "a")(cluster())


def test_wait_shows_counts_and_obstacles() -> None:
    ready = {"type": "Ready", "message": "no image"}
    other = {"type": "Available", "message": "none"}
    assert scale._where(None) == "0 Pods, 0 connected"
    shown = scale._where(cluster(replicas=2, readyReplicas=1, conditions=[other, ready]))
    assert shown == "2 Pods, 1 connected; no image"
