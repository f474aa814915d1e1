"""What tests/e2e share."""

from collections.abc import Iterator

import pytest

from kilnwork.kit import ids, processes
from support import waiting


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In the environment of all that this test starts; nothing of it may be left."""
    value = ids.new_uid()
    monkeypatch.setenv("KILN_TEST_MARK", value)
    found = f"KILN_TEST_MARK={value}"
    yield found
    try:
        waiting.wait_until(lambda: not processes.find_marked(found), what="nothing is left")
    finally:
        processes.kill_members(None, marker=found)
