"""docs/reference/rules-and-variables.md: every row of its tables is evaluated."""

import json
import re
from typing import Any

import msgspec
import pytest
import yaml

from kilnwork.api import (
    cel_evaluation,
    iregexp,
    json_limits,
    jsonpaths,
    object_task_manifests,
    result_rule_compiler,
    substitution,
)
from support import pages

PAGE = (pages.DOCS / "reference" / "rules-and-variables.md").read_text()
RULES = pages.sections(PAGE, 2)["Result rules"]
VARIABLES = pages.sections(PAGE, 2)["Variables"]
WORDS = " ".join(PAGE.split())
(DOCUMENT,) = pages.blocks(PAGE, "json")


def rows(text: str, heading: str) -> list[tuple[str, str]]:
    """The rows of the table whose first heading that is; `\\|` is a bar."""
    (table,) = re.findall(rf"^\| {heading}.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    found = []
    for line in table.splitlines():
        first, second, *_ = re.split(r"(?<!\\) ?\| ?", line)[1:]
        found.append((first.replace("\\|", "|").strip("`"), second.strip("`")))
    return found


@pytest.mark.parametrize(("written", "gives"), rows(RULES, "rule"))
def test_rule_gives_the_documented_value(written: str, gives: str) -> None:
    parsed = (
        yaml.safe_load(written) if written.startswith("{json") or "cel:" in written else written
    )
    condition = result_rule_compiler.compile_condition(
        msgspec.convert(parsed, result_rule_compiler.Condition)
    )
    results = {"true": True, "false": False, "undefined": None}
    assert condition.evaluate(json.loads(DOCUMENT)) is results[gives]


def test_first_block_contains_rules() -> None:
    (block,) = pages.blocks(PAGE, "yaml")
    parsed = msgspec.convert(yaml.safe_load(block), result_rule_compiler.ResultRules)
    assert result_rule_compiler.problems(parsed, "spec") == []
    outcomes = [
        result_rule_compiler.compile_rules(parsed).judge({"status": status})
        for status in (
            {"phase": "Error"},
            {"phase": "Succeeded"},
            {"startTime": "x", "attempts": 1},
            {},
        )
    ]
    assert outcomes == [
        result_rule_compiler.RuleOutcome.FAILED,
        result_rule_compiler.RuleOutcome.SUCCESS,
        result_rule_compiler.RuleOutcome.RUNNING,
        None,
    ]


def test_operators_and_fields_are_those_of_the_code() -> None:
    assert [name for name, _ in rows(RULES, "operator")] == list(result_rule_compiler.Operator)
    fields = [field.encode_name for field in msgspec.structs.fields(result_rule_compiler.Rule)]
    assert [name for name, _ in rows(RULES, "field")] == fields
    for field in msgspec.structs.fields(result_rule_compiler.ResultRules):
        assert f"`{field.encode_name}`" in WORDS or f"{field.encode_name}:" in PAGE


def test_limits_are_those_of_the_code() -> None:
    assert f"a list of up to {result_rule_compiler.MAX_RULES} rules" in WORDS
    assert f"at most {iregexp.MAX_CHARS} characters and {iregexp.MAX_POSITIONS} positions" in WORDS
    assert f"An expression may have {cel_evaluation.MAX_PREDICATE_CHARS} characters" in WORDS
    assert ("two deep" in WORDS) is (cel_evaluation.MAX_NESTING == 2)
    assert f"A path has at most {jsonpaths.MAX_CHARS} characters" in WORDS
    for subject in ("A document may have", "The result may have"):
        size = f"{json_limits.MAX_SIZE} values and characters, and {json_limits.MAX_DEPTH} levels"
        assert f"{subject} {size}" in WORDS
    assert json_limits.MAX_SIZE == substitution.MAX_SIZE
    assert f"may take {json_limits.MAX_WORK} steps" in WORDS


def test_variables_prefixes_and_fields_are_those_of_the_code() -> None:
    assert dict(rows(VARIABLES, "variable")) == substitution.TASK_VARIABLES
    named = re.search("Names that begin with (.*?) are variables", WORDS)
    assert named is not None
    assert tuple(re.findall("`(.*?)`", named[1])) == substitution.PREFIXES
    texts = re.search(
        "that hold strings: of a Pod, (.*?); of an object or a Workflow, (.*?)[.]", WORDS
    )
    assert texts is not None
    assert set(re.findall("`(.*?)`", texts[1])) == substitution.TEXT_FIELDS
    assert set(re.findall("`(.*?)`", texts[2])) == object_task_manifests.TEXT_FIELDS


@pytest.mark.parametrize(("template", "becomes"), rows(VARIABLES, "with"))
def test_variable_gives_the_documented_value(template: str, becomes: str) -> None:
    values: dict[str, Any] = {"option.n": 3, "option.x": "a${task.name}", "task.name": "print"}
    assert substitution.substitute(template, values) == json.loads(becomes)
