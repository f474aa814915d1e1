"""Tables of states as Markdown, at their place on a page."""

import pytest

from kilnwork.api import reasons, task
from kilnwork.executors import state_table_types

R = reasons.Reason
S = task.State
C = state_table_types.Counts
ROWS = state_table_types.rows(
    (
        (S.RUNNING, C.NOTHING, ((R.STARTED, "it runs"),)),
        (S.FAILED, C.FAILURE, ((R.NON_ZERO_EXIT, "exit 1"), (R.OUT_OF_MEMORY, "exit 137"))),
    )
)
TABLE = state_table_types.Table("some", "some.states", "Pod", ROWS)
PAGE = """before
<!-- some: written by `make docs` from kilnwork.executors.some.states -->
an old table
<!-- end of some -->
after
"""


def test_rows_of_a_group_have_its_state_and_count() -> None:
    assert list(ROWS) == [
        state_table_types.Row(S.RUNNING, "it runs", R.STARTED, C.NOTHING),
        state_table_types.Row(S.FAILED, "exit 1", R.NON_ZERO_EXIT, C.FAILURE),
        state_table_types.Row(S.FAILED, "exit 137", R.OUT_OF_MEMORY, C.FAILURE),
    ]


@pytest.mark.parametrize(
    ("what", "header"), [("Pod", "What is seen of the Pod"), ("", "What is seen")]
)
def test_the_header_says_of_what_the_rows_are(what: str, header: str) -> None:
    first, _, *rows = TABLE._replace(what=what).lines()
    assert first == f"| State of the task | {header} | Reason | Counts against |"
    assert rows[0] == "| Running | it runs | Started |  |"
    assert rows[1] == "| Failed | exit 1 | NonZeroExit | `maxAttempts` |"


def test_a_table_replaces_the_old_one_and_nothing_else() -> None:
    page = state_table_types.written(PAGE, [TABLE])
    assert page.startswith("before\n<!-- some:")
    assert page.endswith("\n\n<!-- end of some -->\nafter\n")
    assert "an old table" not in page
    assert "| Failed | exit 137 | OutOfMemory | `maxAttempts` |" in page
    assert state_table_types.written(page, [TABLE]) == page


@pytest.mark.parametrize("cut", ["some:", "end of some"])
def test_a_page_without_the_place_of_a_table_is_an_error(cut: str) -> None:
    with pytest.raises(ValueError, match="no place for table some"):
        state_table_types.written(PAGE.replace(cut, "?"), [TABLE])
