"""One Pod that has something on this node."""

from pathlib import Path

import pytest

from kilnwork.controlplane.node import pod_decisions, pod_state, volumes
from kilnwork.controlplane.node import shim_container as containers

RUNS = containers.ContainerRecord("u/a/1", "/d", pid=5)
ENDED = containers.ContainerRecord("u/a/0", "/d", exit_code=0)


@pytest.fixture
def state(tmp_path: Path) -> pod_state.PodState:
    directory = volumes.PodDirectory(tmp_path, "u", links=tmp_path / "m")
    return pod_state.PodState("u", ("ns", "p"), directory)


def test_container_has_default_view_before_first_change(state: pod_state.PodState) -> None:
    assert state.view("a") == pod_decisions.UNKNOWN
    assert state.views == {}
    assert state.records() == []


def test_change_keeps_other_fields_of_a_view(state: pod_state.PodState) -> None:
    state.change("a", last=RUNS, before=ENDED)
    state.change("a", ready=False)
    assert state.view("a") == pod_decisions.UNKNOWN._replace(last=RUNS, before=ENDED, ready=False)
    assert state.view("b") == pod_decisions.UNKNOWN


def test_running_counts_only_running_containers(state: pod_state.PodState) -> None:
    state.change("a", last=RUNS, before=ENDED)
    state.change("b", last=ENDED)
    assert state.running == 1
    assert state.records() == [RUNS, ENDED, ENDED]
