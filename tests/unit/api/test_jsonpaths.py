"""JSONPath (RFC 9535): the library with our hooks, and the bound on its work."""

import random
import tracemalloc
from typing import Any

import pytest

from kilnwork.api import json_limits, jsonpaths

DOCUMENT: dict[str, Any] = {
    "status": {
        "phase": "Succeeded",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Idle", "status": "False"},
        ],
    },
    "list": [1, True, [1], [True], {"x": None}],
}


def select(path: str, document: Any = DOCUMENT, *, steps: int = json_limits.MAX_WORK) -> list[Any]:
    return jsonpaths.Path(path).select(document, json_limits.Budget(steps))


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.status.phase", ["Succeeded"]),
        ("$['status'][\"phase\"]", ["Succeeded"]),
        ("$.nope.phase", []),
        ('$.status.conditions[?@.type=="Ready" && @.status=="True"].type', ["Ready"]),
        ("$.status.conditions[-1].type", ["Idle"]),
        ('$.status[?@ == "Succeeded"]', ["Succeeded"]),
        ("$..type", ["Ready", "Idle"]),
        ("$.list[?@ == 1]", [1]),
        ("$.list[?@ == $.list[2]]", [[1]]),
        ("$.list[?@ != $.list[2]]", [1, True, [True], {"x": None}]),
        ("$.list[?@ <= $.list[3]]", [[True]]),
        ("$.list[?@.x == null]", [{"x": None}]),
        ("$.list[?@.x]", [{"x": None}]),
        ("$.status[?match(@, 'S.*d')]", ["Succeeded"]),
        ("$.status[?match(@, 'cc')]", []),
        ("$.status[?search(@, 'cc')]", ["Succeeded"]),
        ("$.list[?length(@) == 1]", [[1], [True], {"x": None}]),
        ("$[?count(@.*) == 5][0]", [1]),
    ],
)
def test_path_selects_as_expected(path: str, values: list[Any]) -> None:
    assert repr(select(path)) == repr(values)


@pytest.mark.parametrize("document", ["text", '{"a": 1}', True, None, 3, ""])
def test_the_root_of_a_scalar_is_the_scalar(document: Any) -> None:
    """A string is a value: the library would parse it."""
    assert select("$", document) == [document]
    assert select("$.a", document) == []
    assert select("$[?@ == 1]", document) == []


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "is no JSONPath"),
        (".a", "is no JSONPath"),
        (" $.a", "whitespace"),
        ("$.a | $.b", "is no JSONPath"),
        ("$.a[?@ =~ /x/]", "is no JSONPath"),
        ("$.a.~b", "is no JSONPath"),
        ("$[?match(@.a, @.b)]", "pattern of match() must be a literal"),
        (r"$[?search(@.a, '\\d')]", "write [0-9]"),
        ("$[?match(@.a, '^a.*')]", r"write \^ and [$]"),
        ("$[?search(@.a, 'a$')]", r"write \^ and [$]"),
        ("$[1e5]", "is no JSONPath"),
        ("$[?@ == 1e999]", "is no JSONPath"),
        ("$[?:1.5]", "is no JSONPath"),
        ("$[?foo(@)]", "'foo' is not defined"),
        ("$." + "a" * 1023, "1024 are allowed"),
    ],
)
def test_invalid_path_is_refused(path: str, problem: str) -> None:
    with pytest.raises(jsonpaths.PathError) as refused:
        jsonpaths.Path(path)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "path",
    [
        "$" + "[*,*]" * 40,
        "$..*..*..*..*",
        "$..[?@..[?@..[?@..a]]]",
        f"$.pairs[{'0,' * 99}0][?@ == 1 || $.pairs[0] == $.pairs[1]]",
        "$.long[?$.pairs[0] == $.pairs[1] && @ == 0]",
        "$.long[?search(@.x, 'a') || search($.text, '(a|b)*a(a|b){200}c')]",
    ],
)
def test_work_is_counted_and_limited(path: str) -> None:
    document = {
        "pairs": [[[0] * 3000] * 5, [[0] * 3000] * 5],
        "long": list(range(20_000)),
        "text": "".join(random.Random(1).choices("ab", k=5000)),
    }
    with pytest.raises(json_limits.LimitExceeded, match="steps"):
        select(path, document)


@pytest.mark.parametrize("path", ["$[?count(@..*) == 50]", "$[?count($..*) == 51]"])
def test_nodes_of_queries_in_filters_count_too(path: str) -> None:
    """Without them the work would be about 200 steps."""
    document = {"a": [0] * 50}
    assert len(select(path, document)) == 1
    with pytest.raises(json_limits.LimitExceeded):
        select(path, document, steps=800)


def test_long_names_use_no_memory_per_node() -> None:
    document = {"x" * 500_000: {"y": [0] * 5000}}
    tracemalloc.start()
    try:
        assert len(select("$.*.y[*]", document)) == 5000
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_each_evaluation_has_its_own_budget() -> None:
    path = jsonpaths.compile_path("$.list[*]")
    assert path is jsonpaths.compile_path("$.list[*]")
    for _ in range(3):
        with pytest.raises(json_limits.LimitExceeded):
            path.select(DOCUMENT, json_limits.Budget(100))
        assert jsonpaths._budget.get(None) is None
        assert len(path.select(DOCUMENT, json_limits.Budget(400))) == 5


def test_document_that_is_too_deep_raises_limit_exceeded() -> None:
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    with pytest.raises(json_limits.LimitExceeded, match="too deep"):
        select("$..a", deep)
