"""docs/reference/executors.md and http.md have the tables of states that the code declares."""

import re

import pytest

from kilnwork.api import reasons, substitution
from kilnwork.executors import state_table_types, states_reference
from support import pages

REFERENCE = pages.DOCS / "reference"
PAGE = (REFERENCE / "executors.md").read_text()


@pytest.mark.parametrize("name", states_reference.PAGES)
def test_tables_are_current(name: str) -> None:
    page = (REFERENCE / name).read_text()
    assert state_table_types.written(page, states_reference.PAGES[name]) == page, "run `make docs`"


def test_every_reason_is_one_of_the_reference() -> None:
    known = {reason.value for reason in reasons.Reason}
    page = (REFERENCE / "reasons.md").read_text()
    for tables in states_reference.PAGES.values():
        for table in tables:
            named = {row.reason.value for row in table.rows}
            assert named <= known
            assert [reason for reason in named if f"`{reason}`" not in page] == []


def test_page_has_exactly_the_variables_of_the_code() -> None:
    shown = re.findall(r"^\| `\$\{(task\.\w+)\}` \|", PAGE, re.MULTILINE)
    assert shown == list(substitution.TASK_VARIABLES)
