"""Whose the name of a node is, from its Lease."""

from pathlib import Path
from typing import Any

import pytest

from kilnwork.controlplane.node import node_lease
from kilnwork.controlplane.node.node_lease import Standing
from kilnwork.kit import clock

NOW = 1_700_000_000.0


def lease(holder: str, *, silent_s: float = 0, **spec: Any) -> dict[str, Any]:
    renewed = clock.rfc3339_micro(NOW - silent_s)
    known = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 40, **spec}
    return {"metadata": {"name": "n1"}, "spec": known}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lease(""), Standing.FREE),
        (lease("me"), Standing.FREE),
        (lease("n1"), Standing.FREE),
        (lease("other", renewTime=None), Standing.FREE),
        ({"metadata": {"name": "n1"}}, Standing.FREE),
        (lease("other"), Standing.HELD),
        (lease("other", silent_s=40), Standing.HELD),
        (lease("other", silent_s=41), Standing.DOUBTFUL),
        (lease("other", silent_s=100), Standing.DOUBTFUL),
        (lease("other", silent_s=101), Standing.FREE),
        (lease("other", silent_s=79, leaseDurationSeconds=None), Standing.HELD),
        (lease("other", silent_s=81, leaseDurationSeconds=None), Standing.DOUBTFUL),
    ],
)
def test_name_is_free_after_expiry_plus_clock_difference(
    found: dict[str, Any], expected: Standing
) -> None:
    assert node_lease.standing(found, "me", now=NOW) is expected


def test_directory_keeps_its_holder_identity(tmp_path: Path) -> None:
    first = node_lease.holder(tmp_path, "machine")
    assert "machine" in first
    assert node_lease.holder(tmp_path, "another") == first
    (tmp_path / "other").mkdir()
    assert node_lease.holder(tmp_path / "other", "machine") != first
