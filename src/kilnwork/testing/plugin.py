"""A pytest plugin with the fixture `kiln_inline`: `pytest_plugins = ["kilnwork.testing.plugin"]` in
your conftest.py.

Not loaded by default. A fixture with an API server is in `testing.kubernetes`.
"""

from collections.abc import Iterator

import pytest

from kilnwork.testing import inline_sessions


@pytest.fixture
def kiln_inline() -> Iterator[inline_sessions.InlineSession]:
    """An inline session, whose tasks run in this process; see `kilnwork.testing`."""
    with inline_sessions.inline() as session:
        yield session
