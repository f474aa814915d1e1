"""`kiln up`: run the whole server on this machine as one process tree, in the foreground.

Contains the options and the printed messages. `foreground_server` owns the process, and
`wiring.embedded` starts and stops the parts in order.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from kilnwork import version
from kilnwork.cli import (
    directory_type,
    foreground_server,
    jobs_api_limits,
    manager_options,
    retention_options,
)
from kilnwork.cli.wiring import embedded
from kilnwork.kit import data_directories
from kilnwork.server.jobs import aksjobscheduler_settings


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65534),
    default=7443,
    show_default=True,
    metavar="PORT",
    help="TLS port; plain HTTP is served on the next port. 0 picks a free pair of ports.",
)
@click.option(
    "--data",
    type=directory_type.Directory(),
    help="Data directory; default: ${XDG_DATA_HOME:-~/.local/share}/kilnwork.",
)
@click.option(
    "--workdir",
    type=directory_type.Directory(exists=True),
    help="Working directory of tasks; default: the current directory.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Number of tasks that TaskCluster `default` runs at once; default: the number of"
    " cores. Used only when the data directory is created.",
)
@click.option(
    "--source-compat",
    is_flag=True,
    help="Serve the Jobs API in the form of aksjobscheduler: text ids, its fields and"
    " environment variables, no token over plain HTTP.",
)
@manager_options.allowed_kinds("*")
@jobs_api_limits.options
@retention_options.options
@foreground_server.logged
def command(
    *,
    port: int,
    data: Path | None,
    workdir: Path | None,
    slots: int | None,
    source_compat: bool,
    allowed_kinds: tuple[str, ...],
    **limited: Any,
) -> int:
    """Start a kilnwork server on this machine, in the foreground.

    \b
    kiln up
    kiln up --port 0 --data ./scratch --workdir examples/01-counter

    Starts an API server, a node, a dispatcher and the controllers, which listen on 127.0.0.1 only.
    Prints the address of the server and the `export KUBECONFIG=…` line for other terminals.

    Ctrl-C or `kiln down` stops the server and all processes that it started; a second Ctrl-C stops
    them without waiting. Objects, results, files and logs stay in the data directory.
    """
    keep = retention_options.chosen(limited)
    settings = embedded.EmbeddedSettings(
        data_dir=(data or data_directories.data_dir()).absolute(),
        port=port,
        workdir=(workdir or Path.cwd()).absolute(),
        slots=slots or len(os.sched_getaffinity(0)),
        allowed_kinds=allowed_kinds,
        keep=keep,
        files=jobs_api_limits.chosen(
            limited, source=aksjobscheduler_settings.read(os.environ) if source_compat else None
        ),
    )
    return foreground_server.serve(
        lambda fail: embedded.EmbeddedServer(settings, on_failure=fail),
        ready=lambda server: _say_ready(server, settings),
    )


def _say_ready(server: embedded.EmbeddedServer, settings: embedded.EmbeddedSettings) -> None:
    state = "is ready" if server.trouble is None else "is not ready, but can be repaired,"
    click.echo(f"kiln {version.__version__} {state} at {server.url} (data: {settings.data_dir})")
    if server.trouble is not None:
        click.echo(f"  {server.trouble}")
    click.echo()
    click.echo(f"  export KUBECONFIG={shlex.quote(str(server.kubeconfig))}")
    click.echo()
    click.echo("In another terminal, with that line first:")
    click.echo("  kiln run --watch -- echo hello     run a command")
    click.echo(
        "  kiln tasks                         list tasks, including those of Python programs"
    )
    click.echo("  kiln upload FILE --mapper M        map the records of a file")
    click.echo("  kiln status                        show workers and task counts")
    if settings.files.source is not None:
        click.echo(f"The Jobs API is at {server.http_url}/jobs, in the form of aksjobscheduler.")
    click.echo("Ctrl-C here, or `kiln down`, stops the server.")
    sys.stdout.flush()
