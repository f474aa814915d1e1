"""Every page is reachable from the index, and no relative link is broken."""

from pathlib import Path
from urllib import parse

import pytest

from support import pages

LINKS = [
    pytest.param(page, target, id=f"{page.relative_to(pages.ROOT)}: {target}")
    for page in (*pages.all_pages(), pages.ROOT / "CONTRIBUTING.md")
    for target in pages.links(page.read_text())
    if not parse.urlsplit(target).scheme
]


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_relative_link_resolves(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    assert found.exists()
    assert found.is_relative_to(pages.ROOT)
    if anchor:
        assert anchor in pages.anchors(found.read_text())


@pytest.mark.parametrize(
    "page", pages.all_pages()[1:], ids=lambda p: str(p.relative_to(pages.DOCS))
)
def test_every_page_is_in_the_index(page: Path) -> None:
    index = pages.DOCS / "README.md"
    linked = {
        (index.parent / t.partition("#")[0]).resolve() for t in pages.links(index.read_text())
    }
    assert page in linked | {index}
