"""Objects with the types of their fields: how lists merge."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import field_types, structured_merge
from support import served_kinds

POD = field_types.type_of(served_kinds.kind_of(api_resources.PODS))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (["a", "b"], ["b"], ["a", "b"]),
        (["a", "b"], ["b", "a"], ["b", "a"]),
        (["a", "b", "c"], ["x", "b"], ["a", "x", "b", "c"]),
        (["a", "b", "c"], ["c", "x", "a"], ["c", "x", "a", "b"]),
        ([], ["a"], ["a"]),
    ],
)
def test_lists_merge_in_order(old: list[str], new: list[str], expected: list[str]) -> None:
    def pod(names: list[str]) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": name} for name in names]}}

    merged = structured_merge.merge(POD, pod(old), pod(new))
    assert sorted(c["name"] for c in merged["spec"]["containers"]) == sorted(expected)
    found = [c["name"] for c in merged["spec"]["containers"] if c["name"] in new]
    assert found == new
