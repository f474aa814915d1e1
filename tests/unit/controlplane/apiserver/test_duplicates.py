"""Fields that a body has twice, in the words of Go's decoders."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import duplicates


@pytest.mark.parametrize(
    ("raw", "paths"),
    [
        (b'{"a":1,"b":{"a":1}}', []),
        (b'{"a":1,"a":2}', ["a"]),
        (b'{"s":{"x":1,"x":1}}', ["s.x"]),
        (b'{"l":[{},{"x":1,"x":2}]}', ["l[1].x"]),
        (b'[{"a":1},{"a":2}]', []),
    ],
)
def test_duplicate_json_fields_are_found_by_path(raw: bytes, paths: list[str]) -> None:
    assert duplicates.find_in_json(raw) == paths


@pytest.mark.parametrize(
    ("typed", "data"), [(True, {"x": 1, "y": 2}), (False, {"y": 2})], ids=["built-in", "custom"]
)
def test_duplicate_maps_are_merged_only_in_built_in_kinds(
    *, typed: bool, data: dict[str, Any]
) -> None:
    raw = b'{"data":{"x":1},"data":{"y":2}}'
    obj = {"data": {"y": 2}}
    texts = duplicates.find_duplicates(raw, "application/json", obj, typed=typed)
    assert texts == ('duplicate field "data"',)
    assert obj == {"data": data}


def test_duplicate_yaml_key_names_the_line() -> None:
    raw = b"a: 1\nb:\n  c: 1\n  c: 2\n3: x\n3: y\n"
    found = duplicates.find_duplicates(raw, "application/yaml", {}, typed=True)
    assert found == (
        (
            "yaml: unmarshal errors:\n"
            '  line 4: key "c" already set in map\n'
            "  line 6: key 3 already set in map"
        ),
    )
    assert duplicates.warnings(found) == [
        'line 4: key "c" already set in map',
        "line 6: key 3 already set in map",
    ]


def test_yaml_merge_keys_and_aliases_are_no_duplicates() -> None:
    raw = b"x: &x {a: 1}\ny: {<<: *x, <<: *x}\nz: *x\n"
    assert duplicates.find_in_yaml(raw) == ""


def test_other_media_types_are_not_checked() -> None:
    assert duplicates.find_duplicates(b'{"a":1,"a":2}', "application/x", {}, typed=True) == ()


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'{"a":1}', False),
        (b'{"a":1,"a":2}', True),
        (b"{a: 1, a: 2}", True),
        (b"a: 1\nb: 2\n", False),
    ],
)
def test_apply_patch_is_checked_as_json_or_yaml(raw: bytes, *, found: bool) -> None:
    assert bool(duplicates.find_in_apply(raw)) is found


def test_other_warnings_are_not_split() -> None:
    assert duplicates.warnings(['duplicate field "a"']) == ['duplicate field "a"']
