"""Mappers that need no code."""

import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.jobs.work import builtins

JSONL = filejobs.InputSpec()
CSV = filejobs.InputSpec(format=filejobs.Format.CSV)
HEADER = ("id", "x")


def test_identity_copies_lines_and_converts_rows_to_objects() -> None:
    copy = builtins.line_maker("identity", JSONL, None)
    assert copy is not None
    assert copy(b"anything") == b"anything"
    rows = builtins.line_maker("identity", CSV, HEADER)
    assert rows is not None
    assert rows(b"1,2") == b'{"id":"1","x":"2"}'


def test_calculator_refuses_invalid_records() -> None:
    make = builtins.line_maker("calculator", JSONL, None)
    assert make is not None
    with pytest.raises(errors.BadRecord):
        make(b"[]")


@pytest.mark.parametrize("name", builtins.NAMES)
@pytest.mark.parametrize("spec", [JSONL, CSV])
def test_all_builtin_names_have_a_mapper(name: str, spec: filejobs.InputSpec) -> None:
    assert builtins.line_maker(name, spec, HEADER) is not None


def test_unknown_name_has_no_mapper() -> None:
    assert builtins.line_maker("upper", JSONL, None) is None
