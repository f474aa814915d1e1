"""Fixtures that the tests in tests/e2e share."""

from collections.abc import Iterator

import pytest

from kilnwork.kit import ids, processes
from support import waiting


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a mark in the environment of all processes that the test starts; none of them may be
    left at the end.
    """
    value = ids.new_uid()
    monkeypatch.setenv("KILN_TEST_MARK", value)
    found = f"KILN_TEST_MARK={value}"
    yield found
    try:
        waiting.wait_until(lambda: not processes.find_marked(found), what="nothing is left")
    finally:
        processes.kill_members(None, marker=found)
