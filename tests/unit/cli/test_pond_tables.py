"""Tables of `kiln data`."""

from typing import Any

import pytest

from kilnwork.cli import pond_tables

DIGEST = "sha256:" + "ab" * 32


def node(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "node": name,
        "ready": True,
        "used": 0,
        "capacity": 1 << 30,
        "snapshots": [],
        "leases": [],
        "counters": {},
        "reason": "",
    } | changes


def cells(line: str) -> list[str]:
    return line.split()


@pytest.mark.parametrize(
    ("counters", "rate"), [({}, "-"), ({"hits": 3, "misses": 1}, "75%"), ({"misses": 2}, "0%")]
)
def test_node_row_shows_hits_of_requested_files(counters: dict[str, int], rate: str) -> None:
    header, row = pond_tables.nodes({"pond": [node("a", counters=counters)]})
    at = header.index("HITS")
    assert row[at:].split()[0] == rate


def test_snapshot_row_names_nodes_with_their_share() -> None:
    whole = {"digest": DIGEST, "bytes": 2048, "files": 4, "filesHere": 4, "leased": True}
    part = whole | {"filesHere": 1, "leased": False}
    _, row = pond_tables.snapshots([node("b", snapshots=[part]), node("a", snapshots=[whole])])
    assert row.startswith("sha256:abababababab ")
    assert row.endswith("a, b (1 of 4 files)")
    assert "true" in row.lower()


def test_lease_row_counts_nodes_and_names_the_first_wait() -> None:
    nodes = {"a": {"ready": True, "message": "no"}, "b": {"ready": False, "message": "fetching"}}
    lease = {"name": "l", "user": "", "ready": False, "nodes": nodes}
    _, row = pond_tables.leases([lease])
    assert cells(row)[-2:] == ["1/2", "fetching"]
    assert "SyncSet" in row
    _, row = pond_tables.leases([lease | {"user": "ann", "nodes": {}}])
    assert "people" in row
    assert cells(row)[-1] == "-"
