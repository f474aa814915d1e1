"""Patterns for paths."""

import pytest

from kilnwork.kit import globs


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.csv", "a.csv", True),
        ("*.csv", "d/a.csv", False),
        ("**/*.csv", "a.csv", True),
        ("**/*.csv", "d/e/a.csv", True),
        ("d/**", "d/e/a", True),
        ("d/**", "d", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[a-c]1", "b1", True),
        ("[!a-c]1", "b1", False),
        ("[!a]1", "/1", False),
        ("[]]", "]", True),
        ("[[]", "[", True),
        ("*", ".hidden", True),
        ("a.c", "abc", False),
        ("*", "a\nb", True),
    ],
)
def test_matches(pattern: str, path: str, *, matches: bool) -> None:
    assert globs.matches(pattern, path) is matches


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", "1 to 1024"),
        ("x" * 1025, "1 to 1024"),
        ("a//b", "component ''"),
        ("../a", "component '..'"),
        ("[a", "not closed"),
        ("[b-a]", "runs backwards"),
    ],
)
def test_problem(pattern: str, text: str) -> None:
    assert text in globs.problem(pattern)
    with pytest.raises(ValueError, match=r".+"):
        globs.matches(pattern, "a")


def test_the_longest_pattern_is_good() -> None:
    assert globs.problem("x" * 1024) == ""
