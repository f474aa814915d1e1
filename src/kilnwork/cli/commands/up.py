"""`kiln up`: everything on this machine in one process tree, in the foreground.

Only the process around it: options, signals, what is printed. What starts and stops, and in which
order, is in `wiring`.
"""

import asyncio
import contextlib
import gc
import os
import shlex
import signal
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import click
import uvloop

from kilnwork import version
from kilnwork.cli import errors, exits, folders, progress, wiring
from kilnwork.kit import coroutines, logs, paths, processes
from kilnwork.kit import errors as kit_errors

_STOP_S = 19.0
"""A stop that takes longer is cut off: SIGTERM ends the server within 20 s."""
_LEVELS = ("warning", "info", "debug")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65534),
    default=7443,
    show_default=True,
    help="Port for TLS; the next one serves plain http. 0 takes a free pair.",
)
@click.option(
    "--data",
    type=folders.Folder(),
    help="Data directory; default ${XDG_DATA_HOME:-~/.local/share}/kilnwork.",
)
@click.option(
    "--workdir",
    type=folders.Folder(exists=True),
    help="Where tasks run; default the current directory.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 1000),
    help="Tasks at once on TaskCluster `default`; default one per core.",
)
@click.option("-v", "--verbose", count=True, help="Log more; twice for debugging.")
@click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
def command(
    port: int,
    data: Path | None,
    workdir: Path | None,
    slots: int | None,
    verbose: int,
    log_json: bool,  # noqa: FBT001
) -> int:
    """Start API server, node, dispatcher and controllers on this machine, in the foreground.

    Listens on 127.0.0.1 only. Ctrl-C or `kiln down` ends it and everything it started; a second
    Ctrl-C does not wait. Objects, results and logs stay in the data directory.
    """
    logs.setup(level=_LEVELS[min(verbose, len(_LEVELS) - 1)], as_json=log_json)
    settings = wiring.Settings(
        data_dir=(data or paths.data_dir()).absolute(),
        port=port,
        workdir=(workdir or Path.cwd()).absolute(),
        slots=slots or len(os.sched_getaffinity(0)),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: wiring.Settings) -> int:
    """Start, say so, wait for a signal or a failure, stop."""
    endings = _Endings()
    server = wiring.Server(settings, on_failure=endings.fail)
    crew = coroutines.Crew("up")
    failure: kit_errors.KilnError | None = None
    try:
        async with progress.waiting("starting") as waiting:
            starting = crew.start("start", _outcome(server.start(say=waiting.say)))
            await _either(starting, endings.first)
        failure = starting.result() if starting.done() else None
        if failure is None and not endings.first.is_set():
            _say_ready(server, settings)
            _collect_seldom()
            await endings.first.wait()
    finally:
        await crew.stop()
        await _stop(server, endings)
    if failure is not None:
        raise failure
    if endings.failure:
        raise errors.CommandError(f"the server stopped by itself: {endings.failure}")
    return exits.Exit.OK


def _collect_seldom() -> None:
    """What is there at the start stays for good, so the garbage collector need not look at it.

    2,000 Tasks cost 0.3 s in 23 collections instead of 0.8 to 1.6 s in 550, of 12 s of CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


async def _outcome(work: Awaitable[None]) -> kit_errors.KilnError | None:
    """None, or the error that is for people to read."""
    try:
        await work
    except kit_errors.KilnError as error:
        return error
    return None


async def _either(one: "asyncio.Task[Any]", other: asyncio.Event) -> None:
    """Wait until one of the two has happened."""
    crew = coroutines.Crew("wait")
    waits = {one, crew.start("other", other.wait())}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await crew.stop()


class _Endings:
    """Why the server should end. SIGINT, SIGTERM or SIGHUP: the first asks, the second insists.

    A SIGHUP that is ignored stays so: nohup(1) keeps the server when the terminal is closed.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.failure = ""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._got)

    def fail(self, text: str) -> None:
        """A part has failed; the first one counts."""
        self.failure = self.failure or text
        self.first.set()

    def _got(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _stop(server: wiring.Server, endings: _Endings) -> None:
    """Stop in order; cut it short after `_STOP_S` or at the second signal."""
    crew = coroutines.Crew("stop")
    async with progress.waiting("stopping") as waiting:
        stopping = crew.start("stop", server.stop(say=waiting.say))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await _either(stopping, endings.second)
    if not stopping.done():
        left = processes.descendants(os.getpid())
        processes.send(left, signal.SIGKILL)
        click.echo(f"stopped by force: {len(left)} processes were killed", err=True)
        os._exit(exits.Exit.FAILED)
    stopping.result()


def _say_ready(server: wiring.Server, settings: wiring.Settings) -> None:
    click.echo(f"kiln {version.__version__} is ready at {server.url} (data: {settings.data_dir})")
    click.echo()
    click.echo(f"  export KUBECONFIG={shlex.quote(str(server.kubeconfig))}")
    click.echo()
    click.echo("In another terminal, with that line first:")
    click.echo("  kiln run --watch -- echo hello     run something")
    click.echo("  kiln tasks                         see tasks, those of Python programs too")
    click.echo("  kiln status                        see workers and counts")
    click.echo("Ctrl-C here, or `kiln down`, stops everything.")
    sys.stdout.flush()
