"""Which nodes are ready, and what is read of one."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import node


def read(**fields: Any) -> node.Node:
    return msgspec.convert({"metadata": {"name": "a"}, **fields}, node.Node)


@pytest.mark.parametrize(
    ("conditions", "is_ready"),
    [
        ([], False),
        ([("Ready", "True")], True),
        ([("Ready", "False")], False),
        ([("Ready", "Unknown")], False),
        ([("DiskPressure", "True")], False),
        ([("DiskPressure", "True"), ("Ready", "True")], True),
    ],
)
def test_a_node_is_ready_if_its_condition_ready_is_true(
    conditions: list[tuple[str, str]],
    is_ready: bool,  # noqa: FBT001
) -> None:
    found = read(
        status={"conditions": [{"type": type_, "status": status} for type_, status in conditions]}
    )
    assert found.ready is is_ready


def test_node_without_a_spec_is_schedulable_and_has_no_taints() -> None:
    assert (read().spec.unschedulable, read().spec.taints) == (False, ())
    assert read().status.allocatable == {}


def test_taint_requires_only_key_and_effect() -> None:
    found = read(spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}).spec.taints
    assert found == (node.Taint(key="gpu", effect="NoSchedule", value=""),)


def test_undeclared_fields_are_ignored() -> None:
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    found = read(spec={"podCIDR": "10.0.0.0/24"}, status={"conditions": [condition]})
    assert found.ready
