"""Invalid values of `from` of a snapshot."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond, snapshot_source_validation


def fields(given: dict[str, Any]) -> list[str]:
    source = msgspec.convert(given, data_pond.SnapshotSource)
    return [field for field, _ in snapshot_source_validation.problems(source)]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"source": "s", "path": "a/b"}, []),
        ({"source": "s", "glob": "**/*.csv"}, []),
        ({"files": "f-1", "path": "parts"}, []),
        ({"inline": {"a/b": "x"}}, []),
        ({}, ["from"]),
        ({"source": "s", "files": "f-1"}, ["from"]),
        ({"output": {"set": "s", "name": "o"}, "glob": "*"}, ["from.glob"]),
        ({"source": "s", "path": "/a"}, ["from.path"]),
        ({"source": "s", "paths": ["a", "../b"]}, ["from.paths[1]"]),
        ({"source": "s", "paths": ["a", "a"]}, ["from.paths[1]"]),
        ({"source": "s", "paths": ["a"], "glob": "*"}, ["from.glob"]),
        ({"source": "s", "glob": "[a"}, ["from.glob"]),
        ({"files": "f-1/parts"}, ["from.files"]),
        ({"files": "f-1", "path": "output"}, ["from.path"]),
        ({"inline": {}}, ["from.inline"]),
        ({"inline": {"a": "x", "a/b": "y"}}, ["from.inline"]),
        ({"inline": {"../a": "x"}}, ["from.inline"]),
        ({"inline": {"a": "x" * (512 * 1024)}}, []),
        ({"inline": {"a": "x" * (512 * 1024 + 1)}}, ["from.inline"]),
    ],
)
def test_invalid_source_is_refused(given: dict[str, Any], found: list[str]) -> None:
    assert fields(given) == found
