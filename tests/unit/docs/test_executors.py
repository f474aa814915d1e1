"""docs/reference/executors.md has the table of states that the code declares."""

import re

from kilnwork.api import reasons, substitution
from kilnwork.executors.pod import states
from support import pages

PAGE = (pages.DOCS / "reference" / "executors.md").read_text()


def test_the_page_is_current() -> None:
    assert states.written(PAGE) == PAGE, "run `make docs`"


def test_its_reasons_are_those_of_the_reference() -> None:
    named = {row.cells[2] for row in pages.table(pages.sections(PAGE, 2)["States"])}
    assert named == {row.reason.value for row in states.TABLE}
    assert named <= {reason.value for reason in reasons.Reason}


def test_every_variable_is_on_the_page_and_no_other() -> None:
    shown = re.findall(r"^\| `\$\{(task\.\w+)\}` \|", PAGE, re.MULTILINE)
    assert shown == list(substitution.TASK_VARIABLES)
