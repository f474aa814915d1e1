"""CEL in result rules: supported expressions, their values, and that their work is known in
advance.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import cel_evaluation, json_limits

POD: dict[str, Any] = {
    "status": {
        "phase": "Running",
        "ready": True,
        "none": None,
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Idle", "status": "False"},
        ],
    }
}


def given_by(text: str, document: Any = None) -> bool | None:
    return cel_evaluation.Predicate(text).evaluate(document or POD, json_limits.Budget())


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("object.status.phase == 'Running'", True),
        ("object.status.phase == 'Failed'", False),
        ("object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", True),
        ("object.status.conditions.all(c, c.status == 'True')", False),
        ("object.status.conditions.filter(c, c.status == 'True').size() == 1", True),
        ("has(object.status.reason)", False),
        ("has(object.status.reason) && object.status.reason == 'x'", False),
        ("object.status.nope == 1", None),
        ("object.status.nope == 1 || object.status.ready", True),
        ("object.status.phase > 3", None),
        ("object.status.none > 3", None),
        ("object.status.conditions[5].type == 'x'", None),
        ("1 / 0 == 1", None),
        ("object.status.phase.matches('(')", None),
        ("object.status.phase.matches('^Run')", True),
        ("object.status.phase", None),
        ("object.status.ready", True),
        ("object.status.phase + 'x' == 'Runningx'  // done", True),
    ],
)
def test_expression_has_the_expected_value(text: str, given: bool | None) -> None:  # noqa: FBT001
    assert given_by(text) is given


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("object.status.nope == 1", "needs nope, which does not exist"),
        ("object.status.phase", 'is "Running", no truth'),
        ("object.status.conditions", "is a list of 2, no truth"),
        ("object.status.phase == 'Failed'", "is false"),
        ("1 / 0 == 1", "cannot be decided: division by zero in CEL expression"),
    ],
)
def test_explain_describes_the_value(text: str, why: str) -> None:
    assert cel_evaluation.Predicate(text).explain(POD, json_limits.Budget()) == why


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot read it"),
        ("object.a ==", "cannot read it"),
        ("object.?a.orValue(1) == 1", "cannot read it"),
        ("isURL(object.a)", "does not know isURL()"),
        ("object.a.transformList(i, v, v) == []", "does not know transformList()"),
        ("cel.bind(x, object.a, x + x == x)", "does not know bind()"),
        ("self.a == 1", "names self; the only variable is object"),
        ("object.a == b", "names b; the only variable is object"),
        ("object.a.map(x, [x, x]) == []", "calls map()"),
        ("object.a.exists(x, x + x == 1)", "has + beside exists()"),
        ("object.a.exists(x, x.matches('a'))", "has matches() beside exists()"),
        ("object.a.all(x, x.all(y, y.all(z, true)))", "has macros 3 deep"),
        ("object.a.all(x, object.b.all(y, true) && (object.c.all(z, (z.all(u, u)))))", "3 deep"),
        (" && ".join(["object.a.matches('x')"] * 5), "calls matches() 5 times"),
        ("object.a == '" + "x" * 1024 + "'", "1024 are allowed"),
        # nothing can be hidden in what looks like text or a comment
        (r"""r'\' == '' || object.a.map(c, true) == [] || r'\' == ''""", "calls map()"),
        ('"""\\"""" == "" || object.a.map(c, c) == []', "calls map()"),
        ("object.a // '\n.map(c, true) == [] // '", "calls map()"),
        ("object.a\t.\n map\r\n ( c , true) == []", "calls map()"),
    ],
)
def test_unsupported_expression_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(cel_evaluation.CelError, match=re.escape(problem)):
        cel_evaluation.Predicate(text)


@pytest.mark.parametrize(
    "text",
    [
        "object.status.phase == '.map(x, x)'",
        "object.status.phase == \"a + b\" || object.status.conditions.exists(c, c.type == '+')",
        "object.status.conditions.exists(c, c.type == 'http://x')",
        "object.status.conditions.all(c, c.type != '') && object.status.conditions.all(c, true)",
    ],
)
def test_string_literals_are_not_treated_as_code(text: str) -> None:
    assert cel_evaluation.Predicate(text).evaluate(POD, json_limits.Budget()) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "object.long.all(x, x in object.long)",
        "object.long.all(x, object.long.all(y, y >= 0))",
        "object.long.all(x, object.long == object.long)",
    ],
)
def test_work_is_counted_before_it_is_done(text: str) -> None:
    long = {"long": list(range(4000))}
    with pytest.raises(json_limits.LimitExceeded, match="steps"):
        cel_evaluation.Predicate(text).evaluate(long, json_limits.Budget())
    assert cel_evaluation.Predicate(text).evaluate({"long": [0, 1]}, json_limits.Budget()) is True


def test_literal_lists_count_as_work() -> None:
    ones = "[" + ",".join(["1"] * 240) + "]"
    with pytest.raises(json_limits.LimitExceeded, match="steps"):
        cel_evaluation.Predicate(f"{ones}.all(x, {ones}.all(y, true))").evaluate(
            {}, json_limits.Budget()
        )


def test_large_document_counts_as_work() -> None:
    with pytest.raises(json_limits.LimitExceeded):
        cel_evaluation.Predicate("size(object) == 0").evaluate([0] * 300_000, json_limits.Budget())


PIECES = [
    *("object", ".a", "[0]", " == ", " && ", "!", "(", ")", "1", "'x'", "true", "null", " ? ", ":"),
    *(".all(x, ", ".exists(y, ", "x", "y", " + ", " in ", "size(", "has(", "r'", "//", "\n", "'''"),
]


@given(
    some.lists(some.sampled_from(PIECES), max_size=12).map("".join),
    some.sampled_from([{}, {"a": []}, {"a": [True, 1, "x", None]}, {"a": {"b": 2**70}}, [], "x"]),
)
def test_any_text_is_refused_or_evaluates_to_true_false_or_none(text: str, document: Any) -> None:
    try:
        predicate = cel_evaluation.Predicate(text)
    except cel_evaluation.CelError:
        return
    assert predicate.evaluate(document, json_limits.Budget()) in (True, False, None)
    assert predicate.explain(document, json_limits.Budget())


@pytest.fixture
def _without_the_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cel_evaluation, "LIBRARY", "no_such_library")
    cel_evaluation.available.cache_clear()
    yield
    cel_evaluation.available.cache_clear()


@pytest.mark.usefixtures("_without_the_library")
def test_expression_without_the_library_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        cel_evaluation.CelError, match=r"needs the package common-expr.*write jsonPath"
    ):
        cel_evaluation.Predicate("object.status.ready")
