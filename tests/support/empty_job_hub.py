"""A job hub without Jobs, for tests of controllers that do not use Jobs."""

import asyncio
from typing import Any, NoReturn, cast

from kilnwork.controllers import ports


class _NoJobs:
    async def changes(self, since: int) -> NoReturn:
        """Wait until cancelled: nothing ever changes."""
        await asyncio.Event().wait()
        raise AssertionError

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a Job or JobConfig was made in a test without an engine: {name}")


def engine() -> ports.JobHub:
    """Return one."""
    return cast(ports.JobHub, _NoJobs())
