"""The dispatcher process of one home: who may connect, and when the process exits.

Run by `python -m kilnwork.dispatch`. A volatile dispatcher ends with its owner, the driver that
started it; a durable one when no driver has been connected and no task has run or waited for a
while. When the process exits it tells its peers, so that workers exit at once.
"""

import asyncio
import contextlib
import gc
import hmac
import logging
import shutil
import signal
import socket
from collections.abc import Callable

from kilnwork.api import attempts
from kilnwork.dispatch import errors, local_secrets, settings
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal import port
from kilnwork.kit import clock, coroutines, ids

log = logging.getLogger(__name__)

MAX_CHECK_S = 1.0
"""Maximum seconds between two checks for a reason to exit."""
MIN_CHECK_S = 0.02
"""Minimum seconds between two such checks; used while no driver is expected."""

NAMESPACE = CLUSTER = "default"
"""The only namespace and the only cluster of a home."""


class OneToken:
    """Accepts the token of the home from all peers (`channel.ports.TokenVerifier`)."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """Return whether a worker of the only cluster presents the token."""
        return (namespace, cluster) == (NAMESPACE, CLUSTER) and self._is(credential)

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        """Return whether a driver in the only namespace presents the token."""
        return namespace == NAMESPACE and self._is(credential)

    async def verify_executor(self, executor: str, namespace: str, credential: str) -> bool:
        """Return False: there is no executor besides the workers."""
        return False

    async def verify_attempt(
        self, ref: attempts.AttemptRef, namespace: str, pod: str, credential: str
    ) -> bool:
        """Return False: there are no Pods of attempts."""
        return False

    def _is(self, credential: str) -> bool:
        return hmac.compare_digest(credential.encode(), self._token)


class DispatcherProcess:
    """Serves the peers of one dispatcher until there is a reason to exit.

    Raises the errors of `hub.Hub.start`.
    """

    def __init__(self, given: settings.DispatcherSettings, kept: port.Store) -> None:
        self._given = given
        self._idle_s = given.idle_s
        self._greeted = 0
        self._leaving_soon = asyncio.Event()
        self._why: asyncio.Future[str]
        self._background = coroutines.BackgroundWork("home")
        directory = given.directory
        self._hub = hub.Hub(
            kept,
            clock=clock.SystemClock(),
            verifier=OneToken(given.token_file.read_text("utf-8").strip()),
            logs_dir=None if directory is None else directory / "logs",
            entropy=ids.system_entropy(),
            options=hub.HubOptions(
                executors=False,
                drivers_prune=True,
                blobs_dir=given.blobs,
                variables=None
                if given.secrets is None
                else local_secrets.SecretFiles(given.secrets),
                clock_file=None if directory is None else directory / "journal.clock",
                on_failure=self._failed,
            ),
        )

    async def serve(self) -> None:
        """Serve peers until there is a reason to exit, then stop the hub."""
        loop = asyncio.get_running_loop()
        self._why = loop.create_future()
        await self._hub.start(socket.socket(fileno=self._given.listener))
        # After the start, so that all restored objects are frozen.
        _tune_collector()
        loop.add_signal_handler(signal.SIGTERM, self._leave, "the dispatcher got SIGTERM")
        loop.add_signal_handler(signal.SIGUSR1, self._leave_soon)
        if self._given.owner is not None:
            # Nothing is ever written to it: it becomes readable when the owner has ended.
            loop.add_reader(self._given.owner, self._leave, "the driver is gone")
        else:
            # A dispatcher with an owner ends with it, however idle it is.
            self._background.start("idle", self._watch_idle())
        try:
            why = await self._why
        finally:
            # Before the hub, which the background work uses.
            await self._background.stop()
            await self._hub.stop(leaving="the dispatcher ends")
            if self._given.scratch is not None:
                shutil.rmtree(self._given.scratch, ignore_errors=True)
        log.info("left", extra={"why": why})

    def _leave(self, why: str) -> None:
        if self._given.owner is not None:
            # A closed descriptor stays readable, and would be reported in every turn of the loop.
            asyncio.get_running_loop().remove_reader(self._given.owner)
        if not self._why.done():
            self._why.set_result(why)

    def _failed(self, error: BaseException) -> None:
        if not self._why.done():
            # This makes the process end with an error.
            self._why.set_exception(errors.HubStopped(f"the dispatcher failed: {error}"))

    def _leave_soon(self) -> None:
        """Have the process exit soon unless a driver connects; called on SIGUSR1.

        The last driver sends the signal when it has closed its session in order.
        """
        self._idle_s = 0.0
        self._greeted = self._hub.greeted
        self._leaving_soon.set()

    async def _watch_idle(self) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            await self._pause()
            # Counted, because a driver may have come and gone between two checks.
            if self._hub.greeted != self._greeted:
                self._greeted, self._idle_s = self._hub.greeted, self._given.idle_s
                self._leaving_soon.clear()
            if self._hub.drivers or self._hub.at_work:
                since = loop.time()
            elif loop.time() - since >= self._idle_s:
                self._leave("no driver, and nothing to do")

    async def _pause(self) -> None:
        """Wait until the next check for a reason to exit; only briefly if no driver is expected."""
        if self._leaving_soon.is_set():
            await asyncio.sleep(MIN_CHECK_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(MIN_CHECK_S, min(MAX_CHECK_S, self._idle_s / 10))):
                await self._leaving_soon.wait()


def _tune_collector() -> None:
    """Make the garbage collector run rarely: the many records are freed without it, having no
    cycles.
    """
    # Collected first, because garbage would be frozen as well.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def run(
    given: settings.DispatcherSettings,
    kept: port.Store,
    *,
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Run a dispatcher with these settings and this store on a new event loop, until it exits."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(DispatcherProcess(given, kept).serve())
