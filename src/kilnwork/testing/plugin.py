"""A pytest fixture: `pytest_plugins = ["kilnwork.testing.plugin"]` in your conftest.py.

Not loaded unless asked for; the only module of kilnwork that imports pytest.
"""

from collections.abc import Iterator

import pytest

from kilnwork.testing import sessions


@pytest.fixture
def kiln_inline() -> Iterator[sessions.InlineSession]:
    """A session whose tasks run in this process; see `kilnwork.testing`."""
    with sessions.inline() as session:
        yield session
