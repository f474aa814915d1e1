"""Entry point of `kiln` and `kubectl kiln`: the table of commands and how errors become exit codes.

Imports click and nothing heavy: a command's module is loaded when it is called, help texts of the
list come from the table.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kilnwork import version
from kilnwork.cli import exits, lazy_import, options
from kilnwork.kit import errors

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """One command: the section of the help it is listed in, and one line about it."""

    section: str
    help: str


COMMANDS: dict[str, Entry] = {
    "up": Entry("Server", "Start everything on this machine, in the foreground."),
    "down": Entry("Server", "Stop the server that runs on a data directory."),
    "status": Entry("Server", "Show server, nodes, clusters, and how tasks and file jobs are."),
    "install": Entry("Server", "Print the manifests of a manager for a Kubernetes cluster."),
    "manager": Entry("Server", "Run the manager of a Kubernetes cluster."),
    "executor": Entry("Server", "Run an executor in the foreground: http sends requests of tasks."),
    "node": Entry("Server", "Attach this machine to a Kubernetes cluster as a node."),
    "run": Entry("Tasks", "Run a command as a Task; --watch follows it to its end."),
    "tasks": Entry("Tasks", "List tasks, those of Python programs too."),
    "logs": Entry("Tasks", "Print what a task printed."),
    "result": Entry("Tasks", "Bring the result of a task."),
    "why": Entry("Tasks", "Say in one sentence why a task is where it is."),
    "wait": Entry("Tasks", "Wait for a state or condition."),
    "cancel": Entry("Tasks", "Stop tasks; their objects and logs stay."),
    "suspend": Entry("Tasks", "Start nothing more of tasks, Jobs, SyncSets or file jobs."),
    "resume": Entry("Tasks", "Go on with what was suspended."),
    "retry": Entry("Tasks", "Start again what failed; --failed reuses what succeeded."),
    "prune": Entry("Tasks", "Forget tasks that are over, with their output and results."),
    "deploy": Entry("Jobs", "Make JobConfigs of the jobs that a Python module declares."),
    "run-job": Entry("Jobs", "Run a JobConfig now or later: make a Job of it."),
    "jobs": Entry("Jobs", "List Jobs, show one or its indexes."),
    "schedule": Entry("Jobs", "Show when JobConfigs run next, and what they missed."),
    "backfill": Entry("Jobs", "Make Jobs for ticks of a schedule that are past."),
    "enable": Entry("Jobs", "Let schedules make Jobs again."),
    "disable": Entry("Jobs", "Let schedules make no Jobs."),
    "render": Entry("SyncSets", "Show the objects that a SyncSet becomes, without a server."),
    "replay": Entry("SyncSets", "Run a generation of a SyncSet again, on the same data."),
    "upload": Entry("Files", "Upload a file and map its records in parallel."),
    "files": Entry("Files", "List file jobs, show one or its parts."),
    "results": Entry("Files", "Bring the result of a file job, or its bad records."),
    "adjust": Entry("Files", "Change how a file job runs while it runs."),
    "data": Entry("Data", "Show what DataPonds hold on each node, and bring data to nodes."),
    "apply": Entry("Objects", "Create or change objects from files."),
    "get": Entry("Objects", "List objects and file jobs."),
    "delete": Entry("Objects", "Delete objects and file jobs."),
    "scale": Entry("Objects", "Ask for another number of workers of a TaskCluster."),
    "token": Entry("Other", "Print a token for the API."),
    "version": Entry("Other", "Show the versions of client and server."),
    "completion": Entry("Other", "Print a completion script for bash, zsh or fish."),
    "help": Entry("Other", "Show help on a command or a topic."),
}


ALIASES = {"kill": "cancel", "pause": "suspend", "redrive": "redrive"}
"""Former names and those of other systems, by the module of the command: they work, and no list
shows them."""


class _Cut(Exception):
    """The reader of the output has gone, as `head` does."""


class Commands(click.Group):
    """A group that loads a command's module only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = cmd_name if cmd_name in COMMANDS else ALIASES.get(cmd_name)
        if module is None:
            return None
        command: click.Command = lazy_import.load(
            f"kilnwork.cli.commands.{module.replace('-', '_')}", "command"
        )
        command.name = cmd_name
        if cmd_name in COMMANDS:
            command.short_help = COMMANDS[cmd_name].help
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS and name not in ALIASES:
            ctx.fail(_no_such_command(name))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """As every group; click itself would end the process at a closed pipe, with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _Cut from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = dict.fromkeys(entry.section for entry in COMMANDS.values())
        for section in sections:
            with formatter.section(section):
                rows = [(name, e.help) for name, e in COMMANDS.items() if e.section == section]
                formatter.write_dl(rows, col_max=12)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        item = lazy_import.load("click.shell_completion", "CompletionItem")
        return [
            item(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]


_ELSEWHERE = {
    "describe": "`kiln why NAME` says why it is as it is, `kiln get KIND NAME -o yaml` all of it",
    "job": "`kiln jobs NAME` shows a Job, `kiln files NAME` a file job",
    "list": "`kiln tasks`, `kiln jobs`, `kiln files` and `kiln get KIND` list",
    "ls": "`kiln tasks`, `kiln jobs`, `kiln files` and `kiln get KIND` list",
    "map": "`kiln upload FILE --mapper M` maps the records of a file",
    "ps": "`kiln tasks` lists tasks",
    "runjob": "`kiln run-job CONFIG` makes a Job",
    "start": "`kiln up` starts the server",
    "stop": "`kiln down` stops the server, `kiln cancel NAME` a task, file job or Job",
    "submit": "`kiln run -- COMMAND` runs a command, `kiln upload FILE` maps a file",
}
"""What people from other systems write, and what does it here."""


def _no_such_command(name: str) -> str:
    if name in _ELSEWHERE:
        return f"no such command: {name!r}. {_ELSEWHERE[name]}."
    near = [known for known in COMMANDS if known.startswith(name[:2])]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"no such command: {name!r}.{hint}"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: `kiln help exit-codes`. Everything here also works as `kubectl kiln …`.",
)
@click.version_option(version.__version__, message="kiln %(version)s")
@options.list_target
def kiln() -> None:
    """Dynamic batch work on Kubernetes: tasks that beget tasks, on a laptop and in a cluster.

    `kiln up` starts a server on this machine; the other commands talk to it, or to whatever
    $KUBECONFIG names.
    """


def _program_name() -> str:
    return "kubectl kiln" if sys.argv[0].rpartition("/")[2] == "kubectl-kiln" else "kiln"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; never raises but for bugs."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # while modules were loaded
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.stdout is None:  # it was closed
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    try:
        return _run(args)
    except (BrokenPipeError, _Cut):
        _forget_output()
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        _forget_output()
        click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        return exits.Exit.FAILED
    return exits.Exit.OK


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _run(args: list[str]) -> int:
    """One command line, with its errors in words."""
    try:
        code = kiln.main(args, prog_name=_program_name(), standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return int(error.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        return exits.Exit.INTERRUPTED
    except errors.KilnError as error:
        click.echo(f"error: {error}", err=True)
        return int(getattr(error, "code", exits.Exit.FAILED))
    return code if isinstance(code, int) else exits.Exit.OK


def _forget_output() -> None:
    """What is left of it goes nowhere, so that Python does not stumble over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
