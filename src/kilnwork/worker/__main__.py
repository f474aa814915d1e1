"""`python -m kilnwork.worker`: one worker, until it is told to stop.

Started by the Pods of a TaskCluster. Exit codes: 0 told to stop; 1 no dispatcher for a minute, or a
bug; 2 its environment is unusable; 3 the dispatcher will not have it.
"""

import asyncio
import logging
import os
import secrets
import sys

from kilnwork.channel import errors as channel_errors
from kilnwork.kit import clock, errors, ids, logs
from kilnwork.worker import agent, settings

log = logging.getLogger(__name__)


async def _run(given: settings.Settings) -> None:
    worker = agent.Agent(
        given,
        inherited=os.environ,
        clock=clock.SystemClock(),
        entropy=ids.system_entropy(),
        session=secrets.token_bytes(16),
    )
    await worker.run()


def main() -> int:
    """Run the worker; its exit code."""
    logs.setup()
    try:
        asyncio.run(_run(settings.from_environment(os.environ)))
    except errors.ConfigurationError as error:
        log.error("worker cannot start", extra={"why": str(error)})  # noqa: TRY400
        return 2
    except errors.KilnError as error:
        log.error("worker leaves", extra={"why": str(error)})  # noqa: TRY400
        refused = isinstance(error, channel_errors.LinkRefused) and not error.retry
        return 3 if refused else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
