"""YAML as Kubernetes tools read it."""

from typing import Any

import pytest

from kilnwork.api import yaml_loader


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-02", "2026-01-02"),
        ("1:30", "1:30"),
        ("017", 15),
        ("0x1F", 31),
        ("-1_000", -1000),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("{on: 1, yes: 2}", {"on": 1, "yes": 2}),
        ("{1: a, True: b}", {"1": "a", "true": "b"}),
        ("yes", True),
    ],
)
def test_value_is_read_as_in_kubernetes(text: str, value: Any) -> None:
    assert yaml_loader.values(text) == [value]


def test_null_documents_are_omitted() -> None:
    assert yaml_loader.values("a: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a: 1, a: 2}", r"key 'a' is already set in this mapping \(line 1, column 8\)"),
        ("{1: a, '1': b}", "key '1' is already set"),
        ("a: [", "line"),
        ("!!python/object:os.system x", "could not determine a constructor"),
    ],
)
def test_malformed_yaml_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(yaml_loader.MalformedYaml, match=message):
        yaml_loader.values(text)
