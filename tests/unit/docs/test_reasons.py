"""docs/reference/reasons.md matches the table of reasons."""

from kilnwork.api import reasons
from support import pages

PAGE = (pages.DOCS / "reference" / "reasons.md").read_text()


def test_page_is_current() -> None:
    assert reasons.page() == PAGE, "run `make docs`"


def test_every_reason_is_in_the_table_of_its_kind() -> None:
    parts = pages.sections(PAGE, 2)
    for heading, family in (("Task", reasons.Reason), ("TaskCluster", reasons.ClusterReason)):
        rows = [row.cells for row in pages.table(parts[heading])]
        assert rows == [(reason.value, reason.sentence) for reason in family]
