"""Patterns of snapshot paths; invalid patterns are refused."""

import pytest

from kilnwork.data import errors
from kilnwork.data.pond import globs


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.csv", "a.csv", True),
        ("*.csv", "a.json", False),
        ("*.csv", "year/a.csv", False),
        ("**/*.csv", "year/a.csv", True),
    ],
)
def test_path_matches_its_pattern(pattern: str, path: str, fits: bool) -> None:  # noqa: FBT001
    assert globs.matches(pattern, path) is fits


def test_invalid_pattern_raises_manifest_refused_with_cause() -> None:
    with pytest.raises(errors.ManifestRefused) as refused:
        globs.matches("a[b", "ab")
    assert isinstance(refused.value.__cause__, ValueError)
    assert str(refused.value) == str(refused.value.__cause__)
