"""Fixtures for tests of slots: a worker with slots, and the scripted dispatcher that it connects
to.

Modules with another hub or worker override these fixtures.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import scripted_slots, worker_process


@pytest.fixture
async def hub() -> AsyncIterator[scripted_slots.SlotHub]:
    """Return the scripted dispatcher of the slots and the agent."""
    async with scripted_slots.serving() as found:
        yield found


@pytest.fixture
async def worker(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> AsyncIterator[worker_process.WorkerProcess]:
    """Return an agent with slots, connected to `hub`."""
    async with scripted_slots.working(hub, tmp_path) as found:
        yield found
