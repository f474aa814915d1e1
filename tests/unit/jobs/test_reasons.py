"""Each reason that users see is described in the docs."""

from pathlib import Path

import pytest

from kilnwork.jobs import model

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "file-jobs.md"


@pytest.mark.parametrize("reason", list(model.Reason), ids=str)
def test_each_reason_is_documented(reason: model.Reason) -> None:
    assert f"| `{reason.value}` |" in PAGE.read_text("utf-8")
