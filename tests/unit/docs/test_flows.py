"""The page on flows: its example is a valid flow, its tables list all names."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from kilnwork.api import flow, flow_expressions, flow_program, flow_validation
from kilnwork.jobs.flows import step_results

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "flows.md").read_text("utf-8")


def example() -> flow.Flow:
    text = PAGE.partition("```yaml")[2].partition("```")[0]
    declared: Any = yaml.safe_load(text)
    return msgspec.convert(declared["flow"], flow.Flow)


def test_example_is_valid() -> None:
    snapshots = {"market": False, "trades": True}
    found = flow_validation.problems(example(), snapshots=snapshots, groups=["worker"])
    assert not found


def test_example_has_each_kind_of_step() -> None:
    program, _ = flow_program.build(example())
    kinds = {node.kind for node in program.all_nodes()}
    assert kinds == set(flow_program.NodeKind) - {flow_program.NodeKind.GROUP}


def test_all_fields_and_names_are_on_the_page() -> None:
    fields = [one.encode_name for one in msgspec.structs.fields(flow.Step)]
    assert all(name in PAGE for name in fields)
    members = [*flow_validation.STEP_MEMBERS, *flow_validation.SET_MEMBERS]
    assert all(f".{name}`" in PAGE for name in [*members, *flow_validation.ERROR_MEMBERS])


def test_limits_are_those_of_the_code() -> None:
    for limit in (
        flow.MAX_STEPS,
        flow.MAX_BRANCHES,
        flow.MAX_ITERATIONS,
        flow_expressions.MAX_CHARS,
    ):
        assert f"{limit:,}" in PAGE
    assert f"{step_results.MAX_BYTES >> 20} MiB for each step" in PAGE
