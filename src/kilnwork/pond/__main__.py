"""`python -m kilnwork.pond`: runs the agent of a DataPond on this node until it is asked to stop.

Started by the Pods of a DataPond. Exit codes: 0 asked to stop, or the manager was away for too
long; 1 internal error; 2 invalid environment. The agent reports problems of its directory to the
manager, and tries again.
"""

import asyncio
import logging
import os
import signal
import sys

from kilnwork.kit import clock, errors, ids, logs
from kilnwork.pond import agent, settings

log = logging.getLogger(__name__)


def main() -> int:
    """Run the agent and return its exit code."""
    logs.setup()
    try:
        given = settings.from_environment(os.environ)
        return 0 if asyncio.run(_run(given)) else 1
    except errors.ConfigurationError as error:
        log.error("agent cannot start", extra={"why": str(error)})  # noqa: TRY400
        return 2


async def _run(given: settings.AgentSettings) -> bool:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running = agent.Agent(given, time=clock.SystemClock(), entropy=ids.system_entropy())
    return await running.run(stop)


if __name__ == "__main__":
    sys.exit(main())
