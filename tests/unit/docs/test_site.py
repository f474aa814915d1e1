"""The menu of the documentation site (`mkdocs.yml`) names every page exactly once."""

from typing import Any

import yaml

from support import pages

_ROOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")


def test_menu_names_every_page_once() -> None:
    menu = yaml.safe_load((pages.ROOT / "mkdocs.yml").read_text())["nav"]
    named = list(_pages(menu))
    written = [*pages.DOCS.rglob("*.md"), *pages.ROOT.glob("examples/*/README.md")]
    wanted = [*_ROOT_PAGES, *(str(page.relative_to(pages.ROOT)) for page in written)]
    assert sorted(named) == sorted(wanted)


def _pages(menu: list[Any]) -> list[str]:
    """Return the pages of a menu: texts, or lists of them under a title."""
    found: list[str] = []
    for entry in menu:
        if isinstance(entry, str):
            found.append(entry)
        else:
            [(_, below)] = entry.items()
            found += [below] if isinstance(below, str) else _pages(below)
    return found
