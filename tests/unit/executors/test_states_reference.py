"""Which tables of states are on which page."""

import re

from kilnwork.executors import states_reference


def names(page: str) -> list[str]:
    return [table.name for table in states_reference.PAGES[page]]


def test_every_executor_has_its_table_once() -> None:
    found = [name for page in states_reference.PAGES for name in names(page)]
    assert len(found) == len(set(found)) == 6


def test_requests_have_a_page_of_their_own() -> None:
    assert sorted(states_reference.PAGES) == ["executors.md", "http.md"]
    assert len(names("http.md")) == 1


def test_a_table_names_a_module_of_states() -> None:
    for tables in states_reference.PAGES.values():
        for table in tables:
            assert re.fullmatch(r"([a-z_]+\.)?[a-z_]*states_reference", table.module), table.name
            assert table.rows
