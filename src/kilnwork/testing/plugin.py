"""A pytest fixture: `pytest_plugins = ["kilnwork.testing.plugin"]` in your conftest.py.

Not loaded unless asked for. A fixture with an API server is in `testing.kubernetes`.
"""

from collections.abc import Iterator

import pytest

from kilnwork.testing import sessions


@pytest.fixture
def kiln_inline() -> Iterator[sessions.InlineSession]:
    """A session whose tasks run in this process; see `kilnwork.testing`."""
    with sessions.inline() as session:
        yield session
