"""The status of a DataPond, and when it is written."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond, meta, pond_messages, reasons
from kilnwork.controllers.data_pond import model, pond_state, status
from kilnwork.kit import clock

NOW = 1_800_000_000.0
POND = data_pond.DataPond(
    metadata=meta.ObjectMeta(name="lake", namespace="quant", generation=3),
    spec=data_pond.DataPondSpec(),
)
TROUBLE = pond_messages.PondTrouble(reason="PondUnusable", message="is read-only")


def known(**reports: pond_messages.Report) -> pond_state.PondState:
    made = pond_state.PondState("quant", "lake", time=clock.ManualClock())
    for node, report in reports.items():
        made.take_report(node, report)
    return made


def report(**facts: Any) -> pond_messages.Report:
    return pond_messages.Report(session="s", sequence=1, **facts)


def make(nodes: list[str], pond: pond_state.PondState | None, **more: Any) -> Any:
    return status.make(POND, nodes, pond, **{"why": None, "now": NOW, **more})


def reason(made: data_pond.DataPondStatus, kind: str = "Ready") -> tuple[str, str]:
    (found,) = (one for one in made.conditions if one.type == kind)
    return found.status, found.reason


def test_pond_is_ready_when_every_node_reports() -> None:
    made = make(["n1", "n2"], known(n1=report(used=1, capacity=5), n2=report(used=2, capacity=5)))
    assert reason(made) == ("True", "AgentsReady")
    assert (made.nodes.ready, made.nodes.total) == (2, 2)
    assert (made.bytes.used, made.bytes.capacity) == (3, 10)
    assert status.obstacle(made) == ""


@pytest.mark.parametrize(
    ("nodes", "pond", "why"),
    [
        ([], known(), "NoNodes"),
        (["n1"], known(), "AgentsStarting"),
        (["n1"], known(n1=report(trouble=TROUBLE)), "PondUnusable"),
    ],
)
def test_condition_ready_has_the_reason(
    nodes: list[str], pond: pond_state.PondState, why: str
) -> None:
    assert reason(make(nodes, pond)) == ("False", why)


def test_given_reason_takes_precedence() -> None:
    why = (reasons.PondReason.INVALID_SPEC, "spec.path is wrong")
    made = make(["n1"], known(n1=report()), why=why)
    assert reason(made) == ("False", "InvalidSpec")
    assert status.obstacle(made) == "spec.path is wrong"


def test_snapshots_in_use_come_first() -> None:
    def holding(digest: str, here: int, used: float) -> pond_messages.HoldingReport:
        return pond_messages.HoldingReport(
            digest=digest, files=2, bytes=8, files_here=here, bytes_here=4, used=used
        )

    pond = known(
        n1=report(holdings=(holding("a", 2, 9.0), holding("b", 2, 1.0), holding("c", 1, 5.0))),
        n2=report(holdings=(holding("b", 1, 1.0),)),
    )
    pond.want("risk-g1", nodes=None, snapshots=[model.WantedSnapshot(name="m", digest="b")])
    made = make(["n1", "n2"], pond)
    assert [(s.digest, s.nodes_ready, s.leases) for s in made.snapshots] == [
        ("b", 1, 1),
        ("a", 1, 0),
        ("c", 0, 0),
    ]


def test_byte_counts_are_written_later_than_conditions() -> None:
    old = make(["n1"], known(n1=report(used=1)))
    new = make(["n1"], known(n1=report(used=2)))
    other = make(["n1"], known())
    assert status.wait_s(old, old, written=NOW, now=NOW) is None
    assert status.wait_s(old, new, written=NOW, now=NOW + 0.5) == 1.5
    assert status.wait_s(old, new, written=NOW, now=NOW + 3) == 0.0
    assert status.wait_s(old, other, written=NOW, now=NOW) == 0.0
    assert status.wait_s(old, msgspec.structs.replace(new), written=None, now=NOW) == 0.0
