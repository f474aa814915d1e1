"""Which steps of a flow may write outputs."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import flow, flow_output_validation, sync_set

DO = [
    {"price": {"call": "m:f"}},
    {"checks": {"fork": {"var": {"command": ["x"]}, "es": {"call": "m:g", "deterministic": True}}}},
    {"pod": {"taskTemplate": {"pod": {"spec": {"containers": [{"name": "a"}]}}}}},
]


def problem(step: str) -> str:
    declared = msgspec.convert({"do": DO}, flow.Flow)
    output: Any = sync_set.Output(name="o", step=step)
    found = list(flow_output_validation.problems(declared, [output]))
    assert [position for position, _ in found] == [0] * len(found)
    return found[0][1].text if found else ""


@pytest.mark.parametrize("step", ["price", "checks.var"])
def test_steps_on_workers_can_write_outputs(step: str) -> None:
    assert problem(step) == ""


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("prices", "there are price, checks.var, checks.es, pod"),
        ("checks", "name one of them, checks.var, checks.es"),
        ("checks.es", "is deterministic"),
        ("pod", "does not run on workers"),
    ],
)
def test_other_steps_cannot_write_outputs(step: str, text: str) -> None:
    assert text in problem(step)


def test_outputs_of_an_invalid_flow_are_not_checked() -> None:
    declared = msgspec.convert({"do": [{"a": {}}]}, flow.Flow)
    output: Any = sync_set.Output(name="o", step="b")
    assert list(flow_output_validation.problems(declared, [output])) == []
