"""Result rules: their notations, their results on a document, and refused rules."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import cel_evaluation, json_limits, result_rule_compiler, result_rule_evaluation
from kilnwork.api.result_rule_compiler import Operator, RuleOutcome

DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "book", "labels": {"app.kubernetes.io/name": "x", "sign": "a == b"}},
    "status": {
        "phase": "Running",
        "count": 3,
        "ratio": 0.5,
        "ready": True,
        "none": None,
        "empty": [],
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "Synced", "status": "Unknown"},
            {"type": "Idle", "status": "True"},
        ],
        "parts": [{"phase": "Done"}, {"phase": "Working"}],
    },
}


def compiled(written: Any, field: str = "") -> result_rule_evaluation.CompiledCondition:
    """Compile a condition as a user writes it."""
    return result_rule_compiler.compile_condition(
        msgspec.convert(written, result_rule_compiler.Condition), field
    )


def evaluate(written: Any, document: Any = DOCUMENT) -> bool | None:
    return compiled(written).evaluate(document)


def rule(path: str, operator: str, *value: Any) -> dict[str, Any]:
    return {"jsonPath": path, "operator": operator, **({"value": value[0]} if value else {})}


@pytest.mark.parametrize(
    ("written", "result"),
    [
        (rule("$.status.phase", "Exists"), True),
        (rule("$.status.none", "Exists"), True),
        (rule("$.status.nope", "Exists"), False),
        (rule("$.status.nope", "DoesNotExist"), True),
        (rule("$.status.phase", "DoesNotExist"), False),
        (rule("$.status.phase", "Equal", "Running"), True),
        (rule("$.status.phase", "Equal", "Succeeded"), False),
        (rule("$.status.nope", "Equal", "Succeeded"), None),
        (rule("$.status.none", "Equal", None), True),
        (rule("$.status.ready", "Equal", 1), False),
        (rule("$.status.count", "Equal", 3.0), True),
        (rule("$.status.empty", "Equal", []), True),
        (rule("$.status.phase", "NotEqual", "Succeeded"), True),
        (rule("$.status.nope", "NotEqual", "Succeeded"), None),
        (rule("$.status.phase", "In", ["Failed", "Running"]), True),
        (rule("$.status.phase", "In", ["Failed"]), False),
        (rule("$.status.nope", "In", ["Failed"]), None),
        (rule("$.status.phase", "NotIn", ["Failed"]), True),
        (rule("$.status.nope", "NotIn", ["Failed"]), None),
        (rule("$.status.count", "Gt", 2), True),
        (rule("$.status.count", "Gt", 3), False),
        (rule("$.status.ratio", "Lt", 1), True),
        (rule("$.status.phase", "Gt", 2), None),
        (rule("$.status.ready", "Lt", 2), None),
        (rule("$.status.nope", "Lt", 2), None),
        (rule("$.status.phase", "Matches", "Run(ning)?"), True),
        (rule("$.status.phase", "Matches", "Run"), False),
        (rule("$.status.count", "Matches", "3"), None),
        (rule("$.status.ready", "IsTrue"), True),
        (rule("$.status.nope", "IsTrue"), None),
        ({"jsonPath": "$.status.ready"}, True),
        ({"jsonPath": "$.status.phase", "value": "Running"}, True),
        ({"cel": "object.status.phase == 'Running'"}, True),
        ({"cel": "object.status.nope == 'Running'"}, None),
    ],
)
def test_rule_is_evaluated(written: Any, result: bool | None) -> None:  # noqa: FBT001
    assert evaluate(written) is result


@pytest.mark.parametrize(
    "path",
    ["$.status.phase", ".status.phase", "{.status.phase}", "{$.status.phase}", "['status'].phase"],
)
@pytest.mark.parametrize(
    ("comparison", "result"),
    [
        (' == "Running"', True),
        ("==  'Running' ", True),
        (' == "Succeeded"', False),
        (' != "Succeeded"', True),
        ("", True),
    ],
)
def test_short_form_with_or_without_dollar_and_braces(
    path: str, comparison: str, *, result: bool
) -> None:
    assert evaluate(f"{path}{comparison}") is result
    assert evaluate({"jsonPath": f"{path}{comparison}"}) is result


@pytest.mark.parametrize(
    ("written", "result"),
    [
        (".status.count == 3", True),
        (".status.count > 2", True),
        (".status.count < 3", False),
        (".status.ready == true", True),
        (".status.ready == 1", False),
        (".status.none == null", True),
        (".status.nope == null", None),
        (".status.empty == []", True),
        (".metadata.labels['app.kubernetes.io/name'] == 'x'", True),
        ('.metadata.labels.sign == "a == b"', True),
        ('.status.conditions[?@.type == "Idle"].status == "True"', True),
        ('.status.conditions[?(@.type=="Ready")].status', False),
    ],
)
def test_short_form_is_evaluated(written: str, result: bool | None) -> None:  # noqa: FBT001
    assert evaluate(written) is result


def test_integers_of_any_size_are_compared() -> None:
    assert evaluate(f".a == {10**30}", {"a": 10**30}) is True
    assert compiled(".a == 1").explain({"a": 2**70}) == f"waiting for .a == 1: it is {2**70}"


def test_quotes_in_the_short_form() -> None:
    text = 'it\'s "it"\n'
    assert evaluate(r"""$.a == 'it\'s "it"\n'""", {"a": text}) is True
    assert evaluate(r'''$.a == "it's \"it\"\n"''', {"a": text}) is True


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (True, True),
        (False, False),
        (None, None),
        ("True", True),
        ("true", True),
        ("False", False),
        ("false", False),
        ("Unknown", None),
        ("anything", True),
        ("", False),
        (0, False),
        (0.0, False),
        (2, True),
        ([], False),
        ([0], True),
        ({}, False),
        ({"a": 0}, True),
    ],
)
def test_path_alone_is_true_if_its_value_is_true(value: Any, result: bool | None) -> None:  # noqa: FBT001
    """Also with Kubernetes' texts: the status of a condition is True, False or Unknown."""
    assert evaluate(".a", {"a": value}) is result


def test_all_of_several_values_must_satisfy_a_rule() -> None:
    assert evaluate('.status.parts[*].phase == "Done"') is False
    assert evaluate('.status.parts[*].phase != "Failed"') is True
    assert evaluate(".status.conditions[*].status", DOCUMENT) is False
    assert evaluate(".a[*]", {"a": [True, None]}) is None
    assert evaluate(".a[*]", {"a": [True, None, False]}) is False
    assert evaluate(rule('$.status.parts[?@.phase == "Working"]', "Exists")) is True
    assert evaluate(".status.empty[*] == 1") is None


TRUE, FALSE, UNDEFINED = ".t == 1", ".t == 2", ".nope == 1"


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ([TRUE, TRUE], True),
        ([TRUE, FALSE], False),
        ([TRUE, UNDEFINED], None),
        ([UNDEFINED, FALSE], False),
        ([FALSE, UNDEFINED], False),
        ([{"cel": "object.t == 1"}, TRUE], True),
    ],
)
def test_list_of_rules_is_a_three_valued_and(written: Any, result: bool | None) -> None:  # noqa: FBT001
    assert evaluate(written, {"t": 1}) is result


REFUSED = [
    ('.status.phase = "x"', "", "has =; write one of ==, !=, >, <"),
    (".status.count >= 3", "", "has >=; write one of"),
    (".status.phase == Succeeded", "", 'a text needs quotes, as in == "Succeeded"'),
    (".status.phase ==", "", "compares with no value: a value must follow"),
    ('.status.count > "3"', "", 'must be a number with Gt; it is "3"'),
    (
        "status.phase",
        "",
        'must begin with $, . or {; write .status.phase, say; it is "status.phase"',
    ),
    ("", "", "must begin with $"),
    ("cel: object.status.ready", "", "CEL is written {cel: …}"),
    (".status[", "", 'is no JSONPath (RFC 9535): unexpected end of query; it is ".status["'),
    ("{range .items[*]}{.a}{end}", "", "must begin with $"),
    ("{.a}{.b}", "", "is no JSONPath"),
    (r"""$.a == 'it\'s \"it\"'""", "", "not closed, or has escapes that JSON does not know"),
    ('.a == "x', "", "not closed"),
    (".a == " + "[" * 2000 + "]" * 2000, "", "it is too deep"),
    (".a == " + "[" * 100 + "]" * 100, "", "more than 64 deep"),
    (".a > 1e999", "", "compares with no value"),
    (r".labels.app\.kubernetes == 'x'", "", "a name with dots is written ['a.b']"),
    (".a" * 600, "", "1024 are allowed"),
    (".a == '" + "x" * 5000 + "'", "", "more than 4096 characters"),
    (".a[?match(@, '(?=a)')]", "", "only plain groups"),
    ([], "", "has 0 rules; it must have 1 to 16"),
    ([".a"] * 17, "", "has 17 rules"),
    ([".a", ".b["], "[1]", "is no JSONPath"),
    ({}, "", "must have one of jsonPath and cel"),
    ({"jsonPath": ".a", "cel": "object.a"}, "", "must have one of jsonPath and cel"),
    ({"jsonPath": ".a ["}, ".jsonPath", "is no JSONPath"),
    ({"jsonPath": ".a == 1", "value": 1}, ".jsonPath", "leave out operator and value"),
    ({"jsonPath": ".a == 1", "operator": "In"}, ".jsonPath", "leave out operator and value"),
    (rule(".a", "Equals", 1), ".operator", "must be one of Exists, DoesNotExist, Equal, NotEqual"),
    (rule(".a", "Exists", 1), ".value", "must be left out with Exists"),
    (rule(".a", "IsTrue", True), ".value", "must be left out with IsTrue"),
    (rule(".a", "Equal"), ".value", "is needed with Equal"),
    (rule(".a", "In", "x"), ".value", 'must be a list with In, as in [a, b]; it is "x"'),
    (rule(".a", "NotIn", []), ".value", "must be a list with NotIn"),
    (rule(".a", "Gt", "3"), ".value", 'must be a number with Gt; it is "3"'),
    (rule(".a", "Lt", True), ".value", "must be a number with Lt; it is true"),
    (rule(".a", "Matches", 3), ".value", "must be a text with Matches; it is 3"),
    (rule(".a", "Matches", "^a.*"), ".value", "leave them out, or write"),
    (rule(".a", "Matches", "a$"), ".value", "leave them out, or write"),
    (rule(".a", "Matches", r"\d+"), ".value", r'write [0-9] (character 2); it is "\\d+"'),
    (rule(".a", "Equal", ["x" * 20_000]), ".value", "more than 16384 values and characters"),
    ({"cel": "object.a", "value": 1}, ".cel", "leave out operator and value"),
    ({"cel": "isURL(object.a)"}, ".cel", 'does not know isURL(); it is "isURL(object.a)"'),
]


@pytest.mark.parametrize(("written", "field", "problem"), REFUSED)
def test_refusal_names_field_value_and_remedy(written: Any, field: str, problem: str) -> None:
    with pytest.raises(result_rule_compiler.InvalidRules) as refused:
        compiled(written, "spec.x")
    ((found, why),) = refused.value.problems
    assert found == f"spec.x{field}"
    assert problem in why
    assert str(refused.value) == f"{found} {why}"


def result_rules(**conditions: Any) -> result_rule_compiler.ResultRules:
    return msgspec.convert(conditions, result_rule_compiler.ResultRules)


def test_all_problems_are_reported_at_once() -> None:
    bad = result_rules(
        successCondition=[".a[", {"jsonPath": ".b", "operator": "Gt"}],
        failureCondition="c",
        runningCondition=".d",
    )
    fields = [field for field, _ in result_rule_compiler.problems(bad, "spec.result")]
    assert fields == [
        "spec.result.successCondition[0]",
        "spec.result.successCondition[1].value",
        "spec.result.failureCondition",
    ]
    assert result_rule_compiler.problems(result_rules(successCondition=".a"), "spec.result") == []


@pytest.fixture
def _without_cel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cel_evaluation, "LIBRARY", "no_such_library")
    cel_evaluation.available.cache_clear()
    yield
    cel_evaluation.available.cache_clear()


@pytest.mark.usefixtures("_without_cel")
def test_only_cel_rules_are_refused_without_the_library() -> None:
    written = result_rules(successCondition=[{"cel": "object.ok"}, ".ok"])
    ((field, problem),) = result_rule_compiler.problems(written, "spec.result")
    assert field == "spec.result.successCondition[0].cel"
    assert "common-expression-language" in problem
    assert result_rule_compiler.problems(result_rules(successCondition=".ok"), "spec.result") == []


def test_rules_are_camel_case_and_refuse_unknown_fields() -> None:
    written = {"successCondition": [{"jsonPath": ".a", "operator": "In", "value": [1]}, ".b"]}
    encoded = msgspec.json.encode(msgspec.convert(written, result_rule_compiler.ResultRules))
    assert msgspec.json.decode(encoded) == written
    with pytest.raises(msgspec.ValidationError, match="unknown field `vlaue`"):
        msgspec.convert({"jsonPath": ".a", "vlaue": 1}, result_rule_compiler.Rule)


PHASES = result_rules(
    successCondition='.status.phase == "Succeeded"',
    failureCondition={"jsonPath": ".status.phase", "operator": "In", "value": ["Failed", "Error"]},
    runningCondition='.status.phase == "Running"',
)


@pytest.mark.parametrize(
    ("phase", "outcome"),
    [
        ("Succeeded", RuleOutcome.SUCCESS),
        ("Error", RuleOutcome.FAILED),
        ("Running", RuleOutcome.RUNNING),
        ("Pending", None),
        (None, None),
    ],
)
def test_outcome_of_a_document(phase: str | None, outcome: RuleOutcome | None) -> None:
    status = {} if phase is None else {"phase": phase}
    assert result_rule_compiler.compile_rules(PHASES).judge({"status": status}) is outcome


def test_failure_takes_precedence_over_success() -> None:
    both = result_rule_compiler.compile_rules(
        result_rules(successCondition=".done", failureCondition=".failed")
    )
    assert both.judge({"done": True, "failed": True}) is RuleOutcome.FAILED
    assert both.judge({"done": True, "failed": False}) is RuleOutcome.SUCCESS
    assert both.judge({"done": True}) is RuleOutcome.SUCCESS
    assert "failureCondition is true" in both.explain({"failed": True})


def test_existing_document_is_running_without_a_running_condition() -> None:
    assert (
        result_rule_compiler.compile_rules(result_rules(successCondition=".done")).judge({})
        is RuleOutcome.RUNNING
    )


@pytest.mark.parametrize("observed", [1, 3, '"2"', "true"])
def test_status_of_another_generation_is_ignored(observed: Any) -> None:
    """A controller that has not observed the new spec still shows the old outcome."""
    checked = result_rule_compiler.compile_rules(PHASES)
    stale: dict[str, Any] = {
        "metadata": {"generation": 2},
        "status": {"observedGeneration": json.loads(str(observed)), "phase": "Succeeded"},
    }
    assert checked.judge(stale) is None
    assert checked.explain(stale) == (
        f"waiting for generation 2 to be observed; status.observedGeneration is {observed}"
    )
    assert checked.judge(stale, check_generation=False) is RuleOutcome.SUCCESS
    stale["status"]["observedGeneration"] = 2
    assert checked.judge(stale) is RuleOutcome.SUCCESS
    del stale["status"]["observedGeneration"]
    assert checked.judge(stale) is RuleOutcome.SUCCESS


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (
            ['.metadata.name == "book"', '.status.phase == "Succeeded"'],
            'waiting for .status.phase == "Succeeded": it is "Running"',
        ),
        (".status.nope > 3", "waiting for .status.nope > 3: it does not exist"),
        (".status.ready == false", "waiting for .status.ready == false: it is true"),
        (
            rule("{.status.phase}", "In", ["a", "b"]),
            'waiting for {.status.phase} In a list of 2: it is "Running"',
        ),
        (
            '.status.parts[*].phase == "Done"',
            'waiting for .status.parts[*].phase == "Done": it is "Working"',
        ),
        (
            {"cel": "object.status.nope"},
            "waiting for object.status.nope: it needs nope, which does not exist",
        ),
        (".status.ready", ""),
    ],
)
def test_explanation_of_a_missing_outcome(written: Any, why: str) -> None:
    assert compiled(written).explain(DOCUMENT) == why
    assert (
        result_rule_compiler.compile_rules(result_rules(successCondition=written)).explain(DOCUMENT)
        == why
    )


def test_equal_rules_are_compiled_once() -> None:
    again = result_rules(successCondition=[{"jsonPath": ".a", "value": ["x"]}])
    first = result_rule_compiler.compile_rules(
        msgspec.convert(msgspec.to_builtins(again), result_rule_compiler.ResultRules), "f"
    )
    assert result_rule_compiler.compile_rules(again, "f") is first


@pytest.mark.parametrize("document", [True, None, 3, "Succeeded", '{"a": 1}', [1]])
def test_response_other_than_an_object_can_be_judged(document: Any) -> None:
    assert compiled({"jsonPath": "$", "value": document}).evaluate(document) is True
    assert evaluate(".a == 1", document) is None


@pytest.mark.parametrize("written", [".a", {"cel": "object.a"}])
def test_documents_are_bounded_in_size_and_depth(written: Any) -> None:
    deep: Any = 1
    for _ in range(json_limits.MAX_DEPTH):
        deep = {"a": deep}
    assert evaluate(written, deep) in (True, None)
    for large in ({"a": deep}, {"a": "x" * json_limits.MAX_SIZE}):
        with pytest.raises(json_limits.LimitExceeded):
            evaluate(written, large)


def test_all_rules_together_have_one_budget() -> None:
    """Each of the rules alone is within the budget."""
    document = {"a": list(range(3000))}
    assert evaluate(".a[?@ > 9999]", document) is None
    with pytest.raises(json_limits.LimitExceeded):
        evaluate([".a[?@ > 9999]"] * 16, document)
    every = result_rules(
        **{f"{name}Condition": [".a[?@ < -1]"] * 4 for name in ("success", "failure", "running")}
    )
    with pytest.raises(json_limits.LimitExceeded):
        result_rule_compiler.compile_rules(every).judge(document)


@pytest.mark.parametrize(
    "written",
    [
        rule(".a[?@ == 1]", "Equal", 2),
        {"cel": "object.a.all(x, x > 1)"},
        rule(".t", "Matches", "(a|b)*a(a|b){300}c"),
    ],
)
def test_judged_document_can_always_be_explained(written: Any) -> None:
    """Documents grow until they take too much work; just before that, they can still be
    explained.
    """
    letters = random.Random(1).choices("ab", k=1 << 16)
    condition = compiled(written)
    refused = False
    for size in (int(1.3**power) for power in range(20, 45)):
        document = {"a": [1] * size, "t": "".join(letters[:size])}
        try:
            condition.evaluate(document)
        except json_limits.LimitExceeded:
            refused = True
            break
        assert condition.explain(document)
    assert refused


def test_catastrophic_pattern_terminates() -> None:
    hostile = rule(".a", "Matches", "(([a-z])+.)+[A-Z]([a-z])+")
    assert evaluate(hostile, {"a": "a" * 5000}) is False


SCALARS = some.one_of(
    some.none(), some.booleans(), some.integers(-(2**53), 2**53), some.text(max_size=8)
)
JSON = some.recursive(
    SCALARS | some.floats(allow_nan=False, allow_infinity=False),
    lambda below: (
        some.lists(below, max_size=3)
        | some.dictionaries(
            some.sampled_from(["a", "b", "status", "metadata", "generation"]), below
        )
    ),
    max_leaves=8,
)


@given(SCALARS, SCALARS)
def test_short_form_equals_the_structured_form(wanted: Any, value: Any) -> None:
    literal = msgspec.json.encode(wanted).decode()
    for sign, operator, same in (("==", "Equal", True), ("!=", "NotEqual", False)):
        equal = type(wanted) is type(value) and wanted == value
        assert evaluate(f".a {sign} {literal}", {"a": value}) is (equal is same)
        assert evaluate(rule("$.a", operator, wanted), {"a": value}) is (equal is same)


@given(JSON, JSON, some.sampled_from(list(Operator)))
def test_any_rule_is_true_false_or_none_for_any_document(
    document: Any, value: Any, operator: Operator
) -> None:
    for path in ("$", "$.a", "$..b", "$.status[*]", "$[?@.a == 1]", "$[?match(@, 'a.*')]"):
        given_value = () if operator in result_rule_compiler._WITHOUT_VALUE else (value,)
        try:
            condition = compiled(rule(path, operator, *given_value))
        except result_rule_compiler.InvalidRules:
            continue
        result = condition.evaluate(document)
        assert result in (True, False, None)
        assert (condition.explain(document) == "") is (result is True)


@given(some.text(r""".$[]{}()'"=!<>@?*ab\ 01,:&|""", max_size=16))
def test_any_text_is_a_rule_or_refused_with_its_field(text: str) -> None:
    try:
        condition = compiled(text, "spec.x")
    except result_rule_compiler.InvalidRules as error:
        refused = error.problems
    else:
        refused = ()
        assert condition.evaluate({"a": [1], "b": {"a": ""}}) in (True, False, None)
    assert all(
        field == "spec.x" and re.match("is |has |must |compares ", why) for field, why in refused
    )
