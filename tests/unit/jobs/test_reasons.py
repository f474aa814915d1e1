"""Each reason that users see is described in the docs."""

from pathlib import Path

import pytest

from kilnwork.jobs import file_job_types

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "file-jobs.md"


@pytest.mark.parametrize("reason", list(file_job_types.Reason), ids=str)
def test_each_reason_is_documented(reason: file_job_types.Reason) -> None:
    assert f"| `{reason.value}` |" in PAGE.read_text("utf-8")
