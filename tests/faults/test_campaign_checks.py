"""The checks that campaigns rely on: they must find lost, repeated and misordered events."""

import json
from pathlib import Path
from typing import Any

import pytest

from support import campaigns
from support.mixed_load import client, load_watchers, load_writers
from support.programs import checks, effects, generator, nodes, oracle, values
from support.sets import journal

KIND = load_writers.CONFIG_MAP
STORY = [
    load_writers.Write("ADDED", "a", 5),
    load_writers.Write("MODIFIED", "b", 6),
    load_writers.Write("DELETED", "b", 0),
    load_writers.Write("ADDED", "c", 8),
]
SEEN = [
    ("ADDED", "w0-1", "a", 5),
    ("MODIFIED", "w0-1", "b", 6),
    ("DELETED", "w0-1", "b", 7),
    ("ADDED", "w0-1", "c", 8),
]


def problems(*segments: load_watchers.Segment) -> list[str]:
    server = client.Client(Path())
    watcher = load_watchers.Watcher(KIND, "1", server, bookmarks=True)
    watcher.segments = list(segments)
    writer = load_writers.Writer(0, 1, server)
    writer.log[KIND, "w0-1"] = STORY
    return load_watchers.problems(watcher, [writer])


def test_watcher_with_all_events_has_no_problem() -> None:
    assert problems(load_watchers.Segment(4, {}, SEEN)) == []


@pytest.mark.parametrize("lost", range(len(SEEN)))
def test_missing_event_is_a_problem(lost: int) -> None:
    assert problems(load_watchers.Segment(4, {}, SEEN[:lost] + SEEN[lost + 1 :]))


def test_repeated_event_is_a_problem() -> None:
    assert problems(load_watchers.Segment(4, {}, [*SEEN[:2], SEEN[1], *SEEN[2:]]))


def test_list_replaces_the_events_before_it() -> None:
    first, second = (
        load_watchers.Segment(4, {}, SEEN[:1]),
        load_watchers.Segment(6, {"w0-1": "b"}, SEEN[2:]),
    )
    assert problems(first, second) == []
    assert problems(first, load_watchers.Segment(6, {"w0-1": "b"}, SEEN[3:]))


def effect(at: int, kind: str, attempt: int = 1, task: str = "t") -> effects.Effect:
    return effects.Effect(at, kind, "c0", task, 1, attempt, 7)


def program(*calls: nodes.Node) -> nodes.Program:
    return nodes.Program(1, durable=True, slots=1, phases=1, collect=("result",), calls=calls)


CALL = nodes.Node("c0", "value", key="k")


@pytest.mark.parametrize(
    ("found", "disturbed", "wrong"),
    [
        ([effect(0, "start"), effect(1, "seen")], False, ""),
        ([effect(0, "start"), effect(1, "start")], True, "was started twice"),
        ([effect(0, "start"), effect(1, "start", 2)], True, ""),
        ([effect(0, "start"), effect(1, "start", 2)], False, "though nothing was killed"),
        ([effect(0, "start", 2), effect(1, "seen")], False, ""),
        ([effect(0, "start"), effect(1, "seen"), effect(2, "start", 2)], True, "after its result"),
        ([effect(0, "start"), effect(1, "start", 1, "u")], True, "was several tasks"),
    ],
)
def test_call_that_starts_twice_without_a_loss_is_a_problem(
    found: list[effects.Effect], *, disturbed: bool, wrong: str
) -> None:
    problem = checks.twice(program(CALL), found, disturbed=disturbed)
    assert wrong in problem
    assert bool(problem) is bool(wrong)


def test_model_traces_failed_inputs_to_their_root_errors() -> None:
    fails = nodes.Node("c0", "raise", how="Boom")
    inputs = (nodes.Input(ref="c0", nested=True),)
    rejects = nodes.Node("c1", "value", inputs=inputs)
    accepts = nodes.Node("c2", "value", inputs=inputs, accept_failures=True)
    after = nodes.Node("c3", "value", inputs=(nodes.Input(ref="c1"),))
    made = program(fails, rejects, accepts, after)
    found = oracle.outcomes(made)
    assert found["c0"] == [["error", "Boom", "boom c0/2"]]
    assert found["c1"] == found["c3"] == [oracle.INPUT_FAILED]
    number = values.combine("c2", [["dict", [["deep", ["list", found["c0"]]]]]])
    assert found["c2"] == [values.plain(number)]
    assert oracle.roots(made, found) == {"c1": {"Boom"}, "c3": {"Boom"}}


def test_generator_is_deterministic_for_a_seed() -> None:
    assert generator.program(17) == generator.program(17) != generator.program(18)


def test_campaign_resumes_from_its_state_file(tmp_path: Path) -> None:
    ran: list[int] = []

    def one(seed: int) -> dict[str, Any]:
        ran.append(seed)
        kind = "hang" if seed == 2 and ran.count(2) == 1 else "ok"
        return {"seed": seed, "kind": kind, "text": "", "seconds": 0.1}

    def run(seeds: str) -> int:
        campaign = campaigns.Campaign(one, state=tmp_path / "state", say=messages.append)
        return campaign.run(campaigns.seeds_of(seeds), jobs=1)

    messages: list[str] = []
    assert run("1:2") == 1
    assert "2 (hang)" in messages[-1]
    assert run("1:2,4") == 0
    assert ran == [1, 2, 2, 4]
    lines = [json.loads(line) for line in (tmp_path / "state").read_text().splitlines()]
    assert [each["kind"] for each in lines] == ["ok", "hang", "ok", "ok"]


@pytest.mark.parametrize(
    ("found", "committed", "starts", "wrong"),
    [
        ({"a": (1, 2)}, {}, [("a", 1), ("a", 2)], 0),
        ({"a": (1, 2)}, {"a": (1, 2)}, [], 0),
        ({}, {}, [], 1),
        ({"a": (1, 1), "b": (1, 1)}, {}, [], 1),
        ({"a": (2, 1)}, {}, [], 1),
        ({"a": (1, 2)}, {"a": (1, 1)}, [], 1),
        ({"a": (1, 1)}, {}, [("a", 1), ("a", 2)], 1),
        ({"a": (1, 1)}, {}, [("a", 1), ("a", 1)], 1),
    ],
)
def test_lost_or_repeated_shards_are_problems(
    found: dict[str, tuple[int, int]],
    committed: dict[str, tuple[int, int]],
    starts: list[tuple[str, int]],
    wrong: int,
) -> None:
    rows = {name: journal.Row(*row) for name, row in found.items()}
    before = {name: journal.Row(*row) for name, row in committed.items()}
    assert len(journal.problems(rows, {"a"}, committed=before, starts=starts)) == wrong
