"""docs/reference/fields.md matches the tables of fields."""

import re

from kilnwork.api import field_support, kind_field_effects, kinds
from kilnwork.cli import field_effects_reference
from kilnwork.controlplane.node import pod_field_effects
from support import field_samples, pages

PAGE = (pages.DOCS / "reference" / "fields.md").read_text()


def test_page_is_current() -> None:
    assert field_effects_reference.page() == PAGE, "run `make docs`"


def test_every_row_has_a_line_and_says_why_it_is_not_honoured() -> None:
    rows = [*pod_field_effects.ROWS, *kind_field_effects.TASK, *kind_field_effects.TASK_CLUSTER]
    for row in rows:
        of_any = re.sub(r"spec\.(init|ephemeral)Containers", "spec.containers", row.path)
        assert any(f"| `{path}` |" in PAGE for path in (row.path, of_any))
        assert row.reason or {row.embedded, row.cluster} <= {"honoured", "by the scheduler"}
        assert ";" not in row.reason, "a condition puts one between fields"


def test_every_field_has_a_row() -> None:
    """tests/integration/test_fields.py checks the statements of the rows."""
    missing = [
        path
        for path in field_samples.pod_fields()
        if field_support.row_for(pod_field_effects.TABLE, path) is None
    ]
    for kind in kinds.OURS:
        rows = kind_field_effects.TABLES[kind.kind]
        paths = field_samples.fields_of(kind)
        missing += [path for path in paths if field_support.row_for(rows, path) is None]
    assert missing == [], "add rows to task_fields or pod_fields, then `make docs`"
