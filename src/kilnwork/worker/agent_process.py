"""Runs the agent in its process, from the start to the exit code.

Used by `__main__`, which imports it only after it has forked the zygote, so that the zygote does
not load the agent's modules.
"""

import asyncio
import importlib
import logging
import os

from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages
from kilnwork.kit import clock, errors, ids
from kilnwork.worker import agent, settings, zygote_link
from kilnwork.worker import errors as worker_errors

log = logging.getLogger(__name__)


def serve(given: settings.WorkerSettings, zygote: zygote_link.ZygoteHandle) -> int:
    """Run the agent until it is asked to stop; return the exit code of the worker."""
    try:
        asyncio.run(_run(given, zygote))
    except errors.KilnError as error:
        refused = isinstance(error, channel_errors.LinkRefused) and not error.retry
        if isinstance(error, channel_errors.LinkRefused) and error.reason == messages.LEAVING:
            return 0
        log.error("worker leaves", extra={"why": str(error)})  # noqa: TRY400
        if isinstance(error, worker_errors.NoZygote):
            return 4
        return 3 if refused else 1
    return 0


async def _run(given: settings.WorkerSettings, zygote: zygote_link.ZygoteHandle) -> None:
    worker = agent.Agent(
        given,
        inherited=os.environ,
        clock=clock.SystemClock(),
        entropy=ids.system_entropy(),
        session=ids.new_session(),
        relay=_relay(given),
    )
    await worker.run(zygote)


def _relay(given: settings.WorkerSettings) -> agent.RelayPort | None:
    """Create the relay if the dispatcher is on another machine. The module `relay` is imported only
    then.
    """
    if given.remote is None:
        return None
    relay: agent.RelayPort = importlib.import_module("kilnwork.worker.relay").Relay(given.remote)
    return relay
