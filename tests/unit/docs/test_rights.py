"""docs/reference/rights.md matches the table of rights."""

from kilnwork.cli.installation import rights
from support import pages


def test_page_is_current() -> None:
    page = (pages.DOCS / "reference" / "rights.md").read_text()
    assert rights.page() == page, "run `make docs`"
