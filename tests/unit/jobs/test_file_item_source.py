"""File jobs are checked when they are created; records of parts are accepted only if their sums
match."""

from typing import Any

import pytest

from kilnwork.api import filejobs
from kilnwork.jobs import errors, file_item_source

_O = filejobs.PartOutcome
PART = filejobs.Part(1, 0, 30, 1, 3, 0)


def manifest(**facts: Any) -> filejobs.Manifest:
    given = {
        "format": filejobs.Format.JSONL, "bytes": 30, "lines": 3, "sha256": "", "parts": (PART,),
    }  # fmt: skip
    return filejobs.Manifest(**{**given, **facts})


def test_parts_must_cover_the_input() -> None:
    file_item_source.check_spec(filejobs.FileJobSpec(), manifest())


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"lines": 4}, "^manifest: .*; upload the input again"),
        ({"bytes": 31}, "^manifest: "),
        ({"parts": ()}, "^manifest: "),
        ({"format": filejobs.Format.TEXT}, "^input.format: jsonl, but the input was read as text"),
        ({"header": ("x" * 200_000,)}, "^spec: it takes "),
    ],
)
def test_invalid_spec_is_refused_with_field_path(facts: dict[str, Any], why: str) -> None:
    with pytest.raises(errors.InvalidJob, match=why):
        file_item_source.check_spec(filejobs.FileJobSpec(), manifest(**facts))


@pytest.mark.parametrize(
    ("total", "succeeded", "failed", "skipped", "outcome"),
    [
        (3, 1, 1, 1, _O.SUCCEEDED),
        (3, 2, 0, 0, _O.FAILED),
        (2, 1, 1, 0, _O.FAILED),
        (4, 2, 1, 1, _O.FAILED),
    ],
)
def test_commit_with_wrong_record_counts_is_a_failure(
    total: int, succeeded: int, failed: int, skipped: int, outcome: filejobs.PartOutcome
) -> None:
    counted = filejobs.Records(total=total, succeeded=succeeded, failed=failed, skipped=skipped)
    commit = filejobs.Commit(part=1, run=1, attempt=1, outcome=_O.SUCCEEDED, records=counted)
    found = file_item_source.check_commit(commit, PART)
    assert found.outcome is outcome
    assert found.message.startswith("3 records, but ") is (outcome is _O.FAILED)


def test_failed_commit_stays_unchanged() -> None:
    commit = filejobs.Commit(part=1, run=1, attempt=1, outcome=_O.FAILED, message="why")
    assert file_item_source.check_commit(commit, PART) is commit
