"""The sentence of `kiln why datapond/NAME`."""

from typing import Any

from kilnwork.cli import pond_sentence


def found(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "lake"}, "status": {"conditions": conditions, **status}}


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def a_node(name: str = "n1", **facts: Any) -> dict[str, Any]:
    given = {"ready": True, "reason": "", "message": "", "leases": [], "pins": [], "counters": {}}
    return {"node": name, **given, **facts}


READY = condition("Ready", "True", "AgentsReady", "every node has an agent that reports")
ROOM = condition("Full", "False", "RoomLeft", "what is wanted has room")
COUNTS = {
    "nodes": {"ready": 2, "total": 2},
    "bytes": {"used": 1 << 30, "capacity": 10 << 30},
    "snapshotsTotal": 1,
}


def test_sentence_of_a_healthy_pond() -> None:
    assert pond_sentence.sentence(found(READY, ROOM, **COUNTS), [a_node(), a_node("n2")]) == (
        "DataPond lake is ready: 2 of 2 nodes have an agent that reports, with 1 snapshot, "
        "1.0 GiB of 10.0 GiB."
    )


def test_sentence_of_an_unprocessed_pond() -> None:
    text = pond_sentence.sentence({"metadata": {"name": "lake"}}, [])
    assert text == "DataPond lake has not been processed yet."


def test_sentence_names_missing_agents_full_disk_and_damage() -> None:
    missing = condition("Ready", "False", "AgentsFailing", "Pod lake-n2 is in ImagePullBackOff")
    full = condition("Full", "True", "PondFull", "node n1: 5 bytes are needed")
    counts = {**COUNTS, "nodes": {"ready": 1, "total": 2}}
    silent = {"ready": False, "reason": "AgentSilent", "message": "its agent does not report"}
    nodes = [a_node(counters={"quarantined": 2}), a_node("n2", **silent)]

    assert pond_sentence.sentence(found(missing, full, **counts), nodes) == (
        "DataPond lake is not ready (AgentsFailing): Pod lake-n2 is in ImagePullBackOff. 1 of 2 "
        "nodes has an agent that reports. It is full: node n1: 5 bytes are needed. Node n2 "
        "(AgentSilent): its agent does not report. 2 damaged files of node n1 were set aside since "
        "its agent was started: look after its disk."
    )


def test_sentence_names_the_last_errors_of_leases_and_pins() -> None:
    gone = {"reason": "SourceMissing", "message": "a is not there"}
    lease = {"name": "risk-g1", "snapshots": [{"name": "market", "trouble": gone}, {"name": "b"}]}
    node = a_node(leases=[lease], pins=[{"id": "r1", "trouble": gone}, {"id": "r2"}])

    text = pond_sentence.sentence(found(READY, ROOM, **COUNTS), [node])

    assert text.endswith(
        " Node n1 waits for snapshot market of lease risk-g1 (SourceMissing): a is not there."
        " Node n1 cannot pin r1 (SourceMissing): a is not there."
    )


def test_sentence_lists_only_some_of_many_errors() -> None:
    gone = {"reason": "SourceMissing", "message": "gone"}
    node = a_node(pins=[{"id": f"r{n}", "trouble": gone} for n in range(7)])

    text = pond_sentence.sentence(found(READY, ROOM, **COUNTS), [node])

    assert text.endswith(" 2 more: `kiln data lake -o json` has them.")
