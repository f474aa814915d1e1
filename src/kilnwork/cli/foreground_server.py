"""Runs a server as a foreground process: event loop, signals, failures, messages, exit code.

Used by `up`, `manager`, `executor` and `node`, which make the server. The first SIGINT, SIGTERM or
SIGHUP stops it in order; the second stops it at once, and so does a timeout.
"""

import asyncio
import contextlib
import functools
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

import click
import uvloop

from kilnwork.cli import errors, exits, wait_notice
from kilnwork.kit import coroutines, logs, processes
from kilnwork.kit import errors as kit_errors

_STOP_S = 19.0
"""Timeout of an orderly stop, so that SIGTERM ends the server within 20 s."""

_SWITCH_S = 0.001
"""How long a thread may keep the interpreter lock while the event loop waits for it; Python's
default is 5 ms. The loop needs the lock several times in each request, and threads that unpack
files hold it nearly all the time.
"""

Say = Callable[[str], None]
"""Reports progress, or the text of a failure, to the user."""


class ForegroundServer(Protocol):
    """A server that `serve` runs: it calls each method once."""

    async def start(self, *, say: Say) -> None:
        """Start the server; it is ready when this returns. A KilnError is shown to the user."""
        ...

    async def stop(self, *, say: Say) -> None:
        """Stop the server. Also called after a failed or cancelled start."""
        ...


S = TypeVar("S", bound=ForegroundServer)
F = TypeVar("F", bound=Callable[..., Any])

_LEVELS = ("warning", "info", "debug")


def logged(function: F) -> F:
    """Add the options `-v` and `--log-json` to a command, and configure logging from them."""

    @functools.wraps(function)
    def command(*, verbose: int, log_json: bool, **given: Any) -> Any:
        level = _LEVELS[min(verbose, len(_LEVELS) - 1)]
        logs.setup(level=level, as_json=log_json)
        return function(**given)

    as_json = click.option("--log-json", is_flag=True, help="Write each log line as a JSON object.")
    verbose = click.option(
        "-v", "--verbose", count=True, help="Log more; given twice, debug messages too."
    )
    return cast(F, verbose(as_json(command)))


def serve(make: Callable[[Say], S], *, ready: Callable[[S], None]) -> int:
    """Make a server, run it until a signal or failure, stop it, and return the exit code.

    `make` gets a function that the server calls with a text when one of its parts ends
    unexpectedly. `ready` is called when the server is ready. Raises what `start` raised, or
    CommandError after a failure.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # modules are never garbage: do not scan them in each collection
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(make, ready))


async def _serve(make: Callable[[Say], S], ready: Callable[[S], None]) -> int:
    endings = _Endings()
    server = make(endings.fail)
    background = coroutines.BackgroundWork("foreground")
    failure: kit_errors.KilnError | None = None
    try:
        async with wait_notice.waiting("starting") as waiting:
            starting = background.start("start", _outcome(server.start(say=waiting.say)))
            await _either(starting, endings.first)
        failure = starting.result() if starting.done() else None
        if failure is None and not endings.first.is_set():
            ready(server)
            _collect_seldom()
            await endings.first.wait()
    finally:
        await background.stop()
        await _stop(server, endings)
        endings.close()
    if failure is not None:
        raise failure
    if endings.failure:
        raise errors.CommandError(f"it stopped by itself: {endings.failure}")
    return exits.Exit.OK


def _collect_seldom() -> None:
    """Freeze the objects that exist at the start, and run the garbage collector less often.

    2,000 Tasks cost 0.3 s in 23 collections instead of 0.8 to 1.6 s in 550, of 12 s of CPU time.
    The middle generation holds at most 40,000 objects: collecting it blocks the event loop for
    about 40 ms. At 200,000 objects it took 240 ms, and 10,000 schedules were that late once a
    minute.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 4, 250)


async def _outcome(work: Awaitable[None]) -> kit_errors.KilnError | None:
    """Await the work and return its KilnError, or None if it succeeds.

    Other errors are raised: they are not for users.
    """
    try:
        await work
    except kit_errors.KilnError as error:
        return error
    return None


async def _either(one: "asyncio.Task[Any]", other: asyncio.Event) -> None:
    """Wait until the task has finished or the event is set."""
    background = coroutines.BackgroundWork("wait")
    waits = {one, background.start("other", other.wait())}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await background.stop()


class _Endings:
    """Recorded reasons to end the server: signals and failures.

    The first SIGINT, SIGTERM or SIGHUP requests a stop in order, the second an immediate one. An
    ignored SIGHUP stays ignored: nohup(1) keeps the server running when the terminal is closed.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.failure = ""
        self._loop = asyncio.get_running_loop()
        self._handled = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._handled.append(signal.SIGHUP)
        for number in self._handled:
            self._loop.add_signal_handler(number, self._got)

    def close(self) -> None:
        """Remove the signal handlers: uvloop leaves them in place when it is closed."""
        for number in self._handled:
            self._loop.remove_signal_handler(number)

    def fail(self, text: str) -> None:
        """Record that a part of the server has failed, and request a stop.

        Only the first failure is kept.
        """
        self.failure = self.failure or text
        self.first.set()

    def _got(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _stop(server: ForegroundServer, endings: _Endings) -> None:
    """Stop the server in order; kill its processes after `_STOP_S` or at the second signal."""
    background = coroutines.BackgroundWork("stop")
    async with wait_notice.waiting("stopping") as waiting:
        stopping = background.start("stop", server.stop(say=waiting.say))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await _either(stopping, endings.second)
    if not stopping.done():
        left = processes.descendants(os.getpid())
        processes.signal_all(left, signal.SIGKILL)
        click.echo(f"stopped by force: {len(left)} processes were killed", err=True)
        os._exit(exits.Exit.FAILED)
    stopping.result()
