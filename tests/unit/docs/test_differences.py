"""docs/reference/differences.md lists exactly the cases that the conformance suite expects to
fail.
"""

import re

from conformance import differences
from support import pages

PAGE = (pages.DOCS / "reference" / "differences.md").read_text()
CASES = pages.ROOT / "tests" / "conformance"


def test_page_lists_the_cases_that_fail() -> None:
    rows = [row.cells for row in pages.table(pages.sections(PAGE, 2)["Failing cases"])]
    listed = {case.strip("`"): why for case, why in rows}
    assert listed == differences.DIFFERENCES


def test_every_listed_case_exists() -> None:
    for case in differences.DIFFERENCES:
        file, _, name = case.partition("::")
        [found] = CASES.rglob(file)
        assert re.search(
            rf"^def {re.escape(name.partition('[')[0])}\(", found.read_text(), re.MULTILINE
        )
