"""Rules in CEL of users' definitions: held as k8s.io/apiextensions-apiserver holds them."""

from collections.abc import Iterator
from typing import Any

import pytest

from kilnwork.api import api_resources, cel_evaluation, kinds
from kilnwork.controlplane.apiserver import builtin, rules_cel
from support import served_kinds

KIND = api_resources.Resource(
    group="example.test", version="v1", kind="Thing", plural="things", singular="thing"
)


def served(**spec: Any) -> builtin.ServedResource:
    """A kind whose `spec` is that."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    return builtin.custom(KIND, {"schema": {"openAPIV3Schema": schema}})


def problems_of(kind: builtin.ServedResource, spec: Any, old: Any = None) -> list[str]:
    before = None if old is None else {"spec": old}
    return [str(cause) for cause in rules_cel.validate(kind, {"spec": spec}, old=before)]


def cel_rules(rule: str, **more: Any) -> list[dict[str, Any]]:
    return [{"rule": rule, **more}]


COUNT = {"properties": {"count": {"type": "integer"}}}


def test_broken_rule_names_field_and_message() -> None:
    kind = served(
        **COUNT, **{"x-kubernetes-validations": cel_rules("self.count < 100", message="too big")}
    )
    assert problems_of(kind, {"count": 99}) == []
    assert problems_of(kind, {"count": 100}) == ['spec: Invalid value: "object": too big']


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
def test_rule_can_have_its_own_message_and_reason(more: dict[str, Any], message: str) -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": cel_rules("self.count < 100", **more)})
    assert problems_of(kind, {"count": 100}) == [message]


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
def test_cel_features_are_supported(rule: str, good: Any, bad: Any) -> None:
    kind = served(
        properties={"list": {"type": "array", "x-kubernetes-validations": cel_rules(rule)}}
    )
    assert problems_of(kind, {"list": good}) == []
    assert problems_of(kind, {"list": bad}) == [
        f'spec.list: Invalid value: "array": failed rule: {rule}'
    ]


def test_evaluation_error_rejects_the_object() -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": cel_rules("10 / self.count > 1")})
    assert problems_of(kind, {"count": 2}) == []
    (message,) = problems_of(kind, {"count": 0})
    assert message.endswith("evaluating rule: 10 / self.count > 1")


def test_names_are_escaped_in_structs_but_not_in_maps() -> None:
    rule = "self.a__dash__b == self.__in__ && self.map['c-d'] == 1"
    properties = {
        "a-b": {"type": "integer"},
        "in": {"type": "integer"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    kind = served(properties=properties, **{"x-kubernetes-validations": cel_rules(rule)})
    assert problems_of(kind, {"a-b": 1, "in": 1, "map": {"c-d": 1}}) == []
    assert problems_of(kind, {"a-b": 1, "in": 2, "map": {"c-d": 1}}) != []


def test_values_have_types_of_the_schema() -> None:
    rule = "self.ratio / 2.0 == 0.5 && self.at < timestamp('2030-01-01T00:00:00Z')"
    properties = {"ratio": {"type": "number"}, "at": {"type": "string", "format": "date-time"}}
    kind = served(properties=properties, **{"x-kubernetes-validations": cel_rules(rule)})
    assert problems_of(kind, {"ratio": 1, "at": "2026-01-01T00:00:00Z"}) == []


def test_transition_rule_sees_self_and_old_self() -> None:
    fixed = {
        "type": "string",
        "x-kubernetes-validations": cel_rules("self == oldSelf", message="no"),
    }
    kind = served(properties={"a": fixed})
    assert problems_of(kind, {"a": "x"}) == []
    assert problems_of(kind, {"a": "x"}, {}) == []
    assert problems_of(kind, {"a": "x"}, {"a": "x"}) == []
    assert problems_of(kind, {"a": "y"}, {"a": "x"}) == ['spec.a: Invalid value: "string": no']


def test_items_of_map_lists_have_an_old_self() -> None:
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "x-kubernetes-validations": cel_rules("self.n >= oldSelf.n", message="falls"),
    }
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    old = {"a": [{"name": "x", "n": 5}, {"name": "y", "n": 1}]}
    new = {"a": [{"name": "y", "n": 1}, {"name": "x", "n": 4}, {"name": "z", "n": 0}]}
    by_name = served(properties={"a": {"type": "array", "items": item, **keyed}})
    assert problems_of(by_name, new, old) == ['spec.a[1]: Invalid value: "object": falls']
    plain = served(properties={"a": {"type": "array", "items": item}})
    assert problems_of(plain, new, old) == []


def test_unchanged_values_are_not_validated_again() -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": cel_rules("self.count < 100")})
    assert problems_of(kind, {"count": 200}, {"count": 200}) == []
    assert problems_of(kind, {"count": 201}, {"count": 200}) != []


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
        assert problems_of(kind, {"a": "x"}) == []


@pytest.fixture
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cel_evaluation, "LIBRARY", "no_such_library")
    cel_evaluation.available.cache_clear()
    yield
    cel_evaluation.available.cache_clear()


@pytest.mark.usefixtures("without_the_library")
def test_without_the_cel_library_rules_are_reported_unenforced() -> None:
    kind = served(**COUNT, **{"x-kubernetes-validations": cel_rules("self.count < 100")})
    assert problems_of(kind, {"count": 200}) == []
    assert "common-expression-language" in rules_cel.unenforced({"rule": "self.count < 100"})


@pytest.mark.parametrize(
    "deep", ["1+" * 2000 + "1 == 1", "(" * 2000 + "true" + ")" * 2000, "!" * 4000 + "true"]
)
def test_deeply_nested_rules_do_not_crash(deep: str) -> None:
    assert len(deep) <= cel_evaluation.MAX_CHARS
    assert len(problems_of(served(**{"x-kubernetes-validations": cel_rules(deep)}), {})) <= 1


def test_rules_of_our_kinds_are_enforced_in_python() -> None:
    assert not any(served_kinds.kind_of(kind).rules for kind in kinds.OURS)
