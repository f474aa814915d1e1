"""The results of compiled rules on a document."""

from typing import Any

import pytest

from kilnwork.api import json_limits, jsonpaths, result_rule_evaluation
from kilnwork.api.result_rule_evaluation import Operator, RuleOutcome


def rule(path: str, operator: Operator, value: Any = None) -> result_rule_evaluation.PathRule:
    return result_rule_evaluation.PathRule(path, jsonpaths.compile_path(path), operator, value)


def holds(document: Any, operator: Operator, value: Any = None) -> bool | None:
    return rule("$.a", operator, value).evaluate(document, json_limits.Budget(10_000))


@pytest.mark.parametrize(
    ("document", "operator", "value", "result"),
    [
        ({"a": 1}, Operator.EXISTS, None, True),
        ({}, Operator.EXISTS, None, False),
        ({}, Operator.DOES_NOT_EXIST, None, True),
        ({}, Operator.EQUAL, 1, None),
        ({"a": 1.0}, Operator.EQUAL, 1, True),
        ({"a": 2}, Operator.NOT_EQUAL, 1, True),
        ({"a": "x"}, Operator.IN, ["x", "y"], True),
        ({"a": "x"}, Operator.NOT_IN, ["x"], False),
        ({"a": 2}, Operator.GT, 2, False),
        ({"a": 2}, Operator.LT, 3, True),
        ({"a": True}, Operator.LT, 3, None),
        ({"a": "True"}, Operator.IS_TRUE, None, True),
        ({"a": "False"}, Operator.IS_TRUE, None, False),
        ({"a": "Unknown"}, Operator.IS_TRUE, None, None),
        ({"a": None}, Operator.IS_TRUE, None, None),
    ],
)
def test_operators_compare_values(
    document: Any, operator: Operator, value: Any, *, result: bool | None
) -> None:
    assert holds(document, operator, value) is result


def test_all_values_at_a_path_must_satisfy_the_rule() -> None:
    path = rule("$.a[*]", Operator.GT, 1)
    budget = json_limits.Budget(10_000)
    assert path.evaluate({"a": [2, 3]}, budget) is True
    assert path.evaluate({"a": [2, "x"]}, budget) is None
    assert path.evaluate({"a": ["x", 1]}, budget) is False
    assert path.explain({"a": [2, 1]}, budget) == "is 1"


DONE = result_rule_evaluation.CompiledCondition([rule("$.status.done", Operator.IS_TRUE)])
BAD = result_rule_evaluation.CompiledCondition([rule("$.status.bad", Operator.IS_TRUE)])
RULES = result_rule_evaluation.CompiledRules(success=DONE, failure=BAD, running=None)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({}, RuleOutcome.RUNNING),
        ({"done": True}, RuleOutcome.SUCCESS),
        ({"done": True, "bad": True}, RuleOutcome.FAILED),
        ({"done": True, "observedGeneration": 2}, None),
        ({"done": True, "observedGeneration": 3}, RuleOutcome.SUCCESS),
    ],
)
def test_judge_returns_the_outcome(status: dict[str, Any], outcome: RuleOutcome | None) -> None:
    assert RULES.judge({"metadata": {"generation": 3}, "status": status}) is outcome


def test_explain_describes_the_missing_condition() -> None:
    text = RULES.explain({"status": {"done": False}})
    assert text == "waiting for $.status.done: it is false"
    stale = {"metadata": {"generation": 3}, "status": {"observedGeneration": 2}}
    assert "waiting for generation 3" in RULES.explain(stale)
    assert RULES.explain(stale, check_generation=False).endswith("does not exist")
