"""Problems of a flow are reported with the path of the field, before anything runs."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import flow, flow_program, flow_validation, names, schema_generation

CALL = {"call": "m.f"}
LOOP = {"until": "true", "do": [{"c": {"call": "m.f"}}]}
EACH = {"each": "s", "of": "data.trades", "call": "m.f"}


def problems(*steps: Any, **more: Any) -> list[str]:
    declared = msgspec.convert({"do": list(steps), **more}, flow.Flow)
    found = flow_validation.problems(
        declared, snapshots={"trades": True, "market": False}, groups=["worker"]
    )
    return [f"{path}: {text}" for path, text in found]


def given(expression: str) -> dict[str, Any]:
    return {"call": "m.f", "with": {"x": [{"deep": f"${{ {expression} }}"}]}}


def test_example_flow_is_valid() -> None:
    assert not problems(
        {"load": {"call": "calib.load", "with": {"curve": "${ data.market }"}}},
        {
            "price": {
                **EACH,
                "with": {"trades": "${ s }"},
                "parallel": 64,
                "retry": {"maxAttempts": 3, "delaySeconds": 5},
            }
        },
        {"total": {"join": "price", "call": "risk.reduce", "allow": {"failed": "1%"}}},
        {"checks": {"fork": {"var": CALL, "pnl": CALL}, "wait": "all"}},
        {"report": {"if": "${ total.value.n > 0 }", "call": "out.alert", "else": CALL}},
        {"solve": {"until": "${ iterate.value < 1e-6 }", "max": 50, "do": [{"iterate": CALL}]}},
        catch=[{"causes": ["DataCorrupt"], "do": [{"page": given("error.reason")}]}],
        timeoutSeconds=2700,
        **{"finally": [{"clean": given("total.state")}]},
    )


@pytest.mark.parametrize(
    ("step", "path", "text"),
    [
        (given("nothing.value"), ".with.x", "names nothing, which is unknown here; steps so far:"),
        (given("a.value"), ".with.x", "names a, a step that is not over by then"),
        (given("later.value"), ".with.x", "names later, a step that is not over by then"),
        (given("first"), ".with.x", "names first; of this step there are: value, state, counts"),
        (given("first.results"), ".with.x", "names first.results; of this step there are: value"),
        (given("data.none"), ".with.x", "names data.none, no snapshot; there are: data.trades"),
        (given("params.none"), ".with.x", "names params.none, no parameter; there are: none"),
        (given("set.uid"), ".with.x", "names set.uid, no member; there are: set.name, set.gene"),
        (given("error.reason"), ".with.x", "names error, which only catch and finally have"),
        (given("1 +"), ".with.x", "is no expression: kilnwork cannot read it"),
        (given("size(first.value"), ".with.x", "is no expression"),
        (given("first.value.isURL()"), ".with.x", "is no expression: kilnwork does not know isURL"),
        ({**CALL, "with": {"x": "a ${ first.value }"}}, ".with.x", "has ${ among other text"),
        ({**CALL, "if": "later.value > 1"}, ".if", "names later"),
        ({**CALL, "else": CALL}, ".else", "needs an `if`"),
        ({**CALL, "if": "true", "else": {**CALL, "if": "true"}}, ".else.if", "has no place in an"),
        ({**EACH, "of": "data.market"}, ".of", "names data.market, which has no shards"),
        ({**EACH, "of": "data.none"}, ".of", "names data.none, no snapshot"),
        ({**EACH, "of": ""}, ".of", "is needed with `each`"),
        ({**EACH, "each": "first"}, ".each", "has the name of a step, first"),
        ({**EACH, "allow": {"failed": "101%"}}, ".allow.failed", "must be a percentage"),
        ({**EACH, "allow": {"failed": -1}}, ".allow.failed", "must be a number from 0 on"),
        ({**CALL, "allow": {"failed": 1}}, ".allow", "has no use in a step of kind work"),
        ({**CALL, "join": "first"}, ".join", "names first, no step with `each` before it"),
        ({**CALL, "group": "gpu"}, ".group", "names gpu, no group; there are: worker"),
        ({"until": "true", "do": [{"b": CALL}]}, ".max", "is needed with `until`"),
        ({"do": [{"b": {**LOOP, "max": 0}}]}, ".do[0].b.max", "is not valid: Expected `int` >= 1"),
        ({"do": [{"b": {**CALL, "max": 3}}]}, ".do[0].b.max", "has no use in a step of kind work"),
        ({"do": [{"b": {"cal": "m.f"}}]}, ".do[0].b", "contains unknown field `cal`"),
        ({"do": [{"first": CALL}]}, ".do[0].first", "has the name of another step, do[0].first"),
        ({"do": [{"FIRST": CALL}]}, ".do[0].FIRST", "must be named by 1 to 40 letters"),
        ({"do": [{"set": CALL}]}, ".do[0].set", "must not be named set"),
        ({"do": [CALL | {"b": CALL}]}, ".do[0]", "must have one entry"),
        ({"do": [{"b": given("c.value")}, {"c": CALL}]}, ".do[0].b.with.x", "names c, a step that"),
        ({"fork": {"b": CALL, "c": given("b.value")}}, ".fork.c.with.x", "names b, a step that is"),
        ({"fork": {"b": CALL}, "wait": 2}, ".wait", "must be all, any, or a number from 1 to 1"),
        ({"fork": {"b": CALL}, "with": {"a": 1}}, ".with", "has no use in a step of kind fork"),
        ({"call": "nothing"}, ".call", "must name a function"),
        ({"call": "m.f", "command": ["true"]}, "", "must have one of call, command"),
        ({}, "", "must have one of call, command"),
        ({"taskTemplate": {"comand": ["x"]}}, ".taskTemplate", "contains unknown field `comand`"),
        (
            {"taskTemplate": {"command": ["x"], "inputObject": "o"}},
            ".taskTemplate",
            "must not name",
        ),
    ],
)
def test_problems_are_found_with_their_paths(step: Any, path: str, text: str) -> None:
    found = problems({"first": CALL}, {"a": step}, {"later": CALL})
    assert len(found) == 1, found
    where, _, what = found[0].partition(": ")
    assert where == f"do[1].a{path}"
    assert text in what


def test_join_and_each_may_not_both_set_allow() -> None:
    found = problems(
        {"price": {**EACH, "allow": {"failed": 1}}},
        {"total": {"join": "price", "call": "m.f", "allow": {"failed": 2}}},
    )
    assert found == ["do[1].total.allow: stands at price too: say it in one place"]


def test_group_is_required_if_there_are_several() -> None:
    declared = msgspec.convert({"do": [{"a": CALL}]}, flow.Flow)
    found = flow_validation.problems(declared, groups=["cpu", "gpu"])
    assert found == [("do[0].a.group", "is needed: one of cpu, gpu")]
    pod = {"taskTemplate": {"pod": {"spec": {}}, "command": []}}
    other = msgspec.convert({"do": [{"a": pod}]}, flow.Flow)
    assert flow_validation.problems(other, groups=["cpu", "gpu"]) == []


def test_flow_with_too_many_steps_is_refused() -> None:
    found = problems(*({f"s{number}": CALL} for number in range(flow.MAX_STEPS + 1)))
    assert found == [f"do: has {flow.MAX_STEPS + 1} steps; {flow.MAX_STEPS} are allowed"]


@pytest.mark.parametrize("largest", [None, 0, 9, 99_999])
def test_task_names_are_distinct_labels(largest: int | None) -> None:
    keys = ["price", "solve[3].iterate", "solve[31].iterate", "x" * 40 + "[999]." + "y" * 40]
    sets = ["eod-risk", "a" * 63]
    suffix = "" if largest is None else f"-{largest}"
    found = [
        flow_program.task_prefix(one, 1234, key, largest=largest) + suffix
        for one in sets
        for key in keys
    ]
    assert len(set(found)) == len(found)
    assert all(names.is_dns_label(name) for name in found)
    assert found[0] == f"eod-risk-g1234-price{suffix}"
    assert found[1] == f"eod-risk-g1234-solve-3-iterate{suffix}"


def test_the_schema_is_small_and_described() -> None:
    found = schema_generation.structural(flow.Flow)
    assert len(msgspec.json.encode(found)) < 8_000
    step = found["properties"]["do"]["items"]["additionalProperties"]
    assert all("description" in one for one in step["properties"].values())
    assert step["properties"]["do"]["items"] == {schema_generation.PRESERVE: True, "type": "object"}
