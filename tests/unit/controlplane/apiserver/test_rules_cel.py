"""Rules in CEL of users' definitions: held as k8s.io/apiextensions-apiserver holds them."""

from collections.abc import Iterator
from typing import Any

import pytest

from kilnwork.api import cel, kinds, resource
from kilnwork.controlplane.apiserver import builtin, rules_cel
from support import served_kinds

KIND = resource.Resource(
    group="example.test", version="v1", kind="Thing", plural="things", singular="thing"
)


def served(**spec: Any) -> builtin.ServedResource:
    """A kind whose `spec` is that."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    return builtin.custom(KIND, {"schema": {"openAPIV3Schema": schema}})


def judged(kind: builtin.ServedResource, spec: Any, old: Any = None) -> list[str]:
    before = None if old is None else {"spec": old}
    return [str(cause) for cause in rules_cel.validate(kind, {"spec": spec}, old=before)]


def ruled(rule: str, **more: Any) -> list[dict[str, Any]]:
    return [{"rule": rule, **more}]


COUNT = {"properties": {"count": {"type": "integer"}}}


def test_a_rule_says_where_and_why() -> None:
    kind = served(
        **COUNT, **{"x-kubernetes-validations": ruled("self.count < 100", message="too big")}
    )
    assert judged(kind, {"count": 99}) == []
    assert judged(kind, {"count": 100}) == ['spec: Invalid value: "object": too big']


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, 'spec: Invalid value: "object": failed rule: self.count < 100'),
        (
            {"messageExpression": "'at most ' + string(99)"},
            'spec: Invalid value: "object": at most 99',
        ),
        ({"messageExpression": "self.none", "message": "m"}, 'spec: Invalid value: "object": m'),
        ({"message": "m", "fieldPath": ".count"}, 'spec.count: Invalid value: "object": m'),
        ({"message": "m", "reason": "FieldValueForbidden"}, "spec: Forbidden: m"),
        ({"message": "m", "reason": "FieldValueRequired"}, "spec: Required value: m"),
        ({"reason": "FieldValueDuplicate"}, 'spec: Duplicate value: "object"'),
    ],
)
def test_a_rule_has_its_own_words(more: dict[str, Any], message: str) -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": ruled("self.count < 100", **more)})
    assert judged(kind, {"count": 100}) == [message]


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("self.all(x, x.name != '')", [{"name": "a"}], [{"name": ""}]),
        ("self.exists_one(x, x == 'a')", ["a"], ["a", "a"]),
        ("size(self) == 1", ["a"], []),
        ("self[0].startsWith('a') && self[0].matches('^[a-z]+$')", ["ab"], ["b"]),
        ("!has(self[0].a) || self[0].a in [1, 2]", [{"a": 1}], [{"a": 3}]),
    ],
)
def test_what_cel_knows(rule: str, good: Any, bad: Any) -> None:
    kind = served(properties={"list": {"type": "array", "x-kubernetes-validations": ruled(rule)}})
    assert judged(kind, {"list": good}) == []
    assert judged(kind, {"list": bad}) == [
        f'spec.list: Invalid value: "array": failed rule: {rule}'
    ]


def test_what_cannot_be_computed_is_refused() -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": ruled("10 / self.count > 1")})
    assert judged(kind, {"count": 2}) == []
    (message,) = judged(kind, {"count": 0})
    assert message.endswith("evaluating rule: 10 / self.count > 1")


def test_names_are_escaped_in_structs_and_not_in_maps() -> None:
    rule = "self.a__dash__b == self.__in__ && self.map['c-d'] == 1"
    properties = {
        "a-b": {"type": "integer"},
        "in": {"type": "integer"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    kind = served(properties=properties, **{"x-kubernetes-validations": ruled(rule)})
    assert judged(kind, {"a-b": 1, "in": 1, "map": {"c-d": 1}}) == []
    assert judged(kind, {"a-b": 1, "in": 2, "map": {"c-d": 1}}) != []


def test_types_are_those_of_the_schema() -> None:
    rule = "self.ratio / 2.0 == 0.5 && self.at < timestamp('2030-01-01T00:00:00Z')"
    properties = {"ratio": {"type": "number"}, "at": {"type": "string", "format": "date-time"}}
    kind = served(properties=properties, **{"x-kubernetes-validations": ruled(rule)})
    assert judged(kind, {"ratio": 1, "at": "2026-01-01T00:00:00Z"}) == []


def test_a_change_is_judged_by_both_sides() -> None:
    fixed = {"type": "string", "x-kubernetes-validations": ruled("self == oldSelf", message="no")}
    kind = served(properties={"a": fixed})
    assert judged(kind, {"a": "x"}) == []
    assert judged(kind, {"a": "x"}, {}) == []
    assert judged(kind, {"a": "x"}, {"a": "x"}) == []
    assert judged(kind, {"a": "y"}, {"a": "x"}) == ['spec.a: Invalid value: "string": no']


def test_items_of_a_list_that_is_a_map_have_a_before() -> None:
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "x-kubernetes-validations": ruled("self.n >= oldSelf.n", message="falls"),
    }
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    old = {"a": [{"name": "x", "n": 5}, {"name": "y", "n": 1}]}
    new = {"a": [{"name": "y", "n": 1}, {"name": "x", "n": 4}, {"name": "z", "n": 0}]}
    by_name = served(properties={"a": {"type": "array", "items": item, **keyed}})
    assert judged(by_name, new, old) == ['spec.a[1]: Invalid value: "object": falls']
    plain = served(properties={"a": {"type": "array", "items": item}})
    assert judged(plain, new, old) == []


def test_what_is_as_it_was_is_not_judged_again() -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": ruled("self.count < 100")})
    assert judged(kind, {"count": 200}, {"count": 200}) == []
    assert judged(kind, {"count": 201}, {"count": 200}) != []


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"rule": "isURL(self.a)"}, "this server does not know isURL()"),
        ({"rule": "self.a.split(',').size() == 1"}, "this server does not know split()"),
        ({"rule": "self.?a.orValue(1) == 1"}, "this server cannot read it"),
        ({"rule": "true", "optionalOldSelf": True}, "this server knows no optionalOldSelf"),
        ({"rule": "1+" * 20_000 + "1 == 1"}, "this server reads rules of up to 4096 characters"),
        ({}, "this server cannot read it"),
        ({"rule": "self.a == 1"}, ""),
    ],
)
def test_rules_that_are_not_enforced_are_reported(rule: dict[str, Any], why: str) -> None:
    assert rules_cel.unenforced(rule).startswith(why)
    assert bool(rules_cel.unenforced(rule)) is bool(why)
    if why:
        kind = served(**{"x-kubernetes-validations": [rule]})
        assert judged(kind, {"a": "x"}) == []


@pytest.fixture
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cel, "LIBRARY", "no_such_library")
    cel.available.cache_clear()
    yield
    cel.available.cache_clear()


@pytest.mark.usefixtures("without_the_library")
def test_without_the_extra_nothing_is_held_and_that_is_said() -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": ruled("self.count < 100")})
    assert judged(kind, {"count": 200}) == []
    assert "common-expression-language" in rules_cel.unenforced({"rule": "self.count < 100"})


@pytest.mark.parametrize(
    "deep", ["1+" * 2000 + "1 == 1", "(" * 2000 + "true" + ")" * 2000, "!" * 4000 + "true"]
)
def test_deep_rules_do_no_harm(deep: str) -> None:
    assert len(deep) <= cel.MAX_CHARS
    assert len(judged(served(**{"x-kubernetes-validations": ruled(deep)}), {})) <= 1


def test_our_own_rules_are_held_in_python() -> None:
    assert not any(served_kinds.kind_of(kind).rules for kind in kinds.OURS)
