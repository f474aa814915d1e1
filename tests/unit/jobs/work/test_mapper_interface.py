"""Code shared by mappers: blank records and the numbers of the others."""

from typing import Any, cast

import pytest

from kilnwork.api import filejobs
from kilnwork.jobs.work import mapper_interface, output_writer

BATCH = [b"a", b"", b" \t", b"b"]


class Counts:
    skipped = 0


def settings(blank: filejobs.Blank) -> mapper_interface.MapperSettings:
    spec = filejobs.InputSpec(blank=blank)
    return mapper_interface.MapperSettings(spec, first_line=1, on_progress=lambda number: None)


def numbered(blank: filejobs.Blank, batch: list[bytes]) -> tuple[list[Any], int]:
    out = Counts()
    found = list(settings(blank).numbered(5, batch, cast("output_writer.Outputs", out)))
    return found, out.skipped


def test_blank_records_are_skipped_and_counted() -> None:
    assert numbered(filejobs.Blank.SKIP, BATCH) == ([(5, b"a"), (8, b"b")], 2)
    assert numbered(filejobs.Blank.SKIP, [b"a", b"b"]) == ([(5, b"a"), (6, b"b")], 0)


def test_blank_records_are_kept_if_configured() -> None:
    kept = next(one for one in filejobs.Blank if one is not filejobs.Blank.SKIP)
    found, skipped = numbered(kept, BATCH)
    assert ([number for number, _ in found], skipped) == ([5, 6, 7, 8], 0)
    assert not settings(kept).skips(b"")


@pytest.mark.parametrize(("raw", "skips"), [(b"", True), (b"\t ", True), (b"x", False)])
def test_skips_blank_records_only(raw: bytes, *, skips: bool) -> None:
    assert settings(filejobs.Blank.SKIP).skips(raw) is skips
    assert settings(filejobs.Blank.SKIP).none_blank([b"y", raw]) is not skips
