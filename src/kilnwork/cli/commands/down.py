"""`kiln down`: stop the server of a data directory and wait until it has exited."""

import asyncio
import os
import signal
from pathlib import Path

import click

from kilnwork.cli import directory_type, errors, options, wait_notice
from kilnwork.controlplane import lock
from kilnwork.kit import data_directories, processes

_LOOK_S = 0.05


@click.command()
@click.option(
    "--data",
    type=directory_type.Directory(),
    help="Data directory of the server; default: ${XDG_DATA_HOME:-~/.local/share}/kilnwork.",
)
@click.option(
    "--timeout",
    type=options.DURATION,
    default=30.0,
    show_default=True,
    help="Stop waiting after this time; the server continues to stop.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Do not wait for Pods to terminate gracefully (sends a second signal).",
)
def command(data: Path | None, timeout: float, force: bool) -> None:  # noqa: FBT001
    """Stop the server of a data directory and everything that it started.

    \b
    kiln down
    kiln down --data ./scratch

    Nothing is lost: objects, results and logs stay in the data directory, and unfinished tasks
    continue at the next `kiln up`.
    """
    directory = (data or data_directories.data_dir()).absolute()
    try:
        server = lock.holder(directory)
    except OSError as error:
        raise errors.InvalidInput(
            f"data directory {directory} cannot be read: {error.strerror}. Correct --data, or ask "
            "its owner"
        ) from error
    if server is None:
        click.echo(f"no server runs on {directory}")
        return
    for number in (signal.SIGTERM, signal.SIGINT) if force else (signal.SIGTERM,):
        _signal(server.pid, number, directory)
    asyncio.run(_wait(server, timeout_s=timeout))
    click.echo(f"the server on {directory} has stopped (pid {server.pid})")


def _signal(pid: int, number: int, directory: Path) -> None:
    try:
        os.kill(pid, number)
    except PermissionError as error:
        raise errors.AccessRefused(
            f"the server on {directory} (pid {pid}) belongs to another user: ask them, or root"
        ) from error
    except ProcessLookupError:
        return


async def _wait(server: processes.ProcessId, *, timeout_s: float) -> None:
    text = f"waiting for pid {server.pid}"
    try:
        async with asyncio.timeout(timeout_s), wait_notice.waiting(text) as waiting:
            while server.alive():
                left = len(processes.descendants(server.pid))
                waiting.say(f"{text}: {left} of its processes still run" if left else text)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise errors.TimedOut(
            f"pid {server.pid} still runs after {timeout_s:g} s: `kiln down --force` insists"
        ) from error
