"""A worker with slots and the script that is its dispatcher: for the tests of slots.

Modules with another hub or worker have fixtures of their own by these names.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import scripted_slots, worker_process


@pytest.fixture
async def hub() -> AsyncIterator[scripted_slots.SlotHub]:
    """What slots and agents take for their dispatcher."""
    async with scripted_slots.serving() as found:
        yield found


@pytest.fixture
async def worker(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> AsyncIterator[worker_process.WorkerProcess]:
    """An agent with slots, attached to `hub`."""
    async with scripted_slots.working(hub, tmp_path) as found:
        yield found
