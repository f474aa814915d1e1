"""Paths of files in a snapshot."""

import pytest

from kilnwork.kit import snapshot_path_validation


@pytest.mark.parametrize(
    "path", ["a", "a/b.csv", ".hidden", "a b/ü", "x" * 255, "/".join("ab" * 256)]
)
def test_these_are_good(path: str) -> None:
    assert snapshot_path_validation.problem(path) == ""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("", "component ''"),
        ("/a", "is absolute"),
        ("a//b", "component ''"),
        ("a/", "component ''"),
        ("a/../b", "component '..'"),
        ("./a", "component '.'"),
        ("a\tb", "control character"),
        ("x" * 256, "above 255 bytes"),
        ("ü" * 128, "above 255 bytes"),
        ("/".join(["abc"] * 257), "has 1027 bytes"),
        ("\udcff", "no UTF-8"),
    ],
)
def test_problem(path: str, text: str) -> None:
    assert text in snapshot_path_validation.problem(path)


def test_parents() -> None:
    assert list(snapshot_path_validation.parents("a/b/c")) == ["a", "a/b"]
    assert list(snapshot_path_validation.parents("a")) == []
