"""docs/reference/fields.md is what the tables of fields say."""

from kilnwork.api import field_page, pod_fields, task_fields
from support import pages

PAGE = (pages.DOCS / "reference" / "fields.md").read_text()


def test_the_page_is_current() -> None:
    assert field_page.page() == PAGE, "run `make docs`"


def test_every_row_has_a_line_and_says_why_it_is_not_honoured() -> None:
    rows = [*pod_fields.ROWS, *task_fields.TASK, *task_fields.TASK_CLUSTER]
    for row in rows:
        assert f"| `{row.path.replace('initContainers', 'containers')}` |" in PAGE
        assert row.reason or {row.embedded, row.cluster} <= {"honoured", "by the scheduler"}
        assert ";" not in row.reason, "a condition puts one between fields"
