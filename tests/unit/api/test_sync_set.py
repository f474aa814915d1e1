"""Groups and replays of a SyncSet."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import sync_set


def spec(**more: Any) -> sync_set.SyncSetSpec:
    given = {
        "resources": {"groups": [{"name": "a", "replicas": 3}, {"name": "b"}]},
        "flow": {"do": [{"a": {"call": "m:f"}}]},
        **more,
    }
    return msgspec.convert(given, sync_set.SyncSetSpec)


def test_group_has_one_worker_by_default() -> None:
    assert [group.count for group in spec().resources.groups] == [3, 1]


def test_the_controller_is_the_last_group() -> None:
    resources = {"groups": [{"name": "a"}], "controller": {"serviceAccountName": "s"}}
    groups = spec(resources=resources).resources.every_group
    assert [group.name for group in groups] == ["a", sync_set.CONTROLLER]
    assert groups[1].service_account_name == "s"
    assert [group.name for group in spec().resources.every_group] == ["a", "b"]


@pytest.mark.parametrize(("generation", "of"), [(3, 1), (4, None)])
def test_replay_applies_to_one_generation(generation: int, of: int | None) -> None:
    replay = {"generation": 3, "of": 1}
    assert spec(generation=generation, replay=replay).replay_of == of


def test_final_phases() -> None:
    final = {str(phase) for phase in sync_set.Phase if phase.final}
    assert {"Succeeded", "Failed", "Killed"} <= final
    assert not final & {"Pending", "Fetching", "Placing", "Running"}
