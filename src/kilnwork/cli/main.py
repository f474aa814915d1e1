"""Entry point of `kiln` and `kubectl kiln`: the table of commands, and exit codes of errors.

To start quickly it imports click and no heavy modules: the module of a command is imported when the
command is called, and `kiln --help` takes its summaries from the table.
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


class CommandEntry(NamedTuple):
    """Row of the command table: the section of a command in `kiln --help`, and its summary."""

    section: str
    help: str


COMMANDS: dict[str, CommandEntry] = {
    "up": CommandEntry("Server", "Start a kilnwork server on this machine, in the foreground."),
    "down": CommandEntry("Server", "Stop the server of a data directory."),
    "status": CommandEntry(
        "Server", "Show the state of the server, its nodes, tasks and file jobs."
    ),
    "install": CommandEntry(
        "Server", "Print the manifests of the manager for a Kubernetes cluster."
    ),
    "manager": CommandEntry("Server", "Run the manager of a Kubernetes cluster."),
    "executor": CommandEntry("Server", "Run an executor that sends the HTTP requests of tasks."),
    "node": CommandEntry("Server", "Attach this machine to a Kubernetes cluster as a node."),
    "run": CommandEntry("Tasks", "Run a command as a Task; --watch follows it until it finishes."),
    "tasks": CommandEntry("Tasks", "List tasks, including those that Python programs submitted."),
    "logs": CommandEntry("Tasks", "Print the output of a task."),
    "result": CommandEntry("Tasks", "Print or save the result of a task."),
    "why": CommandEntry("Tasks", "Explain in one sentence why a task waits, runs or failed."),
    "wait": CommandEntry("Tasks", "Wait until a task or object reaches a state or condition."),
    "cancel": CommandEntry("Tasks", "Stop tasks, Jobs, SyncSets and file jobs."),
    "suspend": CommandEntry("Tasks", "Suspend tasks, Jobs, SyncSets and file jobs."),
    "resume": CommandEntry("Tasks", "Resume suspended tasks, Jobs, SyncSets and file jobs."),
    "retry": CommandEntry("Tasks", "Run failed tasks, Jobs, SyncSets and file jobs again."),
    "prune": CommandEntry(
        "Tasks", "Delete finished tasks from the journal, with output and results."
    ),
    "deploy": CommandEntry(
        "Jobs", "Create or update the JobConfigs that a Python module declares."
    ),
    "run-job": CommandEntry("Jobs", "Create a Job from a JobConfig, to run now or later."),
    "jobs": CommandEntry("Jobs", "List Jobs, or show a Job or its indexes."),
    "schedule": CommandEntry("Jobs", "Show when JobConfigs run next and which ticks they missed."),
    "backfill": CommandEntry("Jobs", "Create Jobs for past ticks of a schedule."),
    "enable": CommandEntry("Jobs", "Enable the schedules of JobConfigs."),
    "disable": CommandEntry("Jobs", "Disable the schedules of JobConfigs."),
    "render": CommandEntry(
        "SyncSets", "Print the objects that a SyncSet creates, without a server."
    ),
    "replay": CommandEntry("SyncSets", "Run a generation of a SyncSet again on the same data."),
    "upload": CommandEntry("Files", "Upload a file and map its records in parallel."),
    "files": CommandEntry("Files", "List file jobs, or show a file job or its parts."),
    "results": CommandEntry("Files", "Print or save the result of a file job, or its bad records."),
    "adjust": CommandEntry("Files", "Change the settings of a file job."),
    "data": CommandEntry("Data", "Show the data on the nodes of DataPonds; fetch data to nodes."),
    "apply": CommandEntry("Objects", "Create or update objects from files."),
    "get": CommandEntry("Objects", "List objects and file jobs."),
    "delete": CommandEntry("Objects", "Delete objects, file jobs and finished tasks."),
    "scale": CommandEntry("Objects", "Set the number of workers of a TaskCluster."),
    "token": CommandEntry("Other", "Print a token for the API."),
    "version": CommandEntry("Other", "Show the versions of client and server."),
    "completion": CommandEntry("Other", "Print a shell completion script for bash, zsh or fish."),
    "help": CommandEntry("Other", "Show help on a command or topic."),
}


ALIASES = {"kill": "cancel", "pause": "suspend", "redrive": "former_redrive"}
"""Hidden alternative names of commands and the module of each: former names and names that other
systems use. Lists and completion do not show them."""


class _OutputClosed(Exception):
    """The reader of standard output has closed the pipe, as `head` does."""


class Commands(click.Group):
    """Group of commands that imports the module of a command only to run it or to show its help."""

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
        """Invoke the command that the arguments name.

        Raises `_OutputClosed` for a closed pipe, for which click would exit with 1.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _OutputClosed from error

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


_OTHER_SYSTEMS = {
    "describe": "`kiln why NAME` explains it, `kiln get KIND NAME -o yaml` prints all fields",
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
"""Command names of other systems, with a sentence that names the kiln command to use."""


def _no_such_command(name: str) -> str:
    if name in _OTHER_SYSTEMS:
        return f"no such command: {name!r}. {_OTHER_SYSTEMS[name]}."
    near = [known for known in COMMANDS if known.startswith(name[:2])]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"no such command: {name!r}.{hint}"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`kiln COMMAND --help` shows examples, `kiln help exit-codes` the exit codes."
    " All commands also work as `kubectl kiln COMMAND`.",
)
@click.version_option(version.__version__, message="kiln %(version)s")
@options.list_target
def kiln() -> None:
    """Run dynamic batch work on Kubernetes: tasks that submit tasks, on a laptop or in a cluster.

    \b
    kiln up                                  start a server on this machine
    kiln run --watch -- echo hello           run a command as a task
    kiln tasks                               list tasks
    kiln upload FILE --mapper MODULE:NAME    map the records of a file

    Commands talk to the server of `kiln up`, or to the cluster that $KUBECONFIG names.
    """


def _program_name() -> str:
    return "kubectl kiln" if sys.argv[0].rpartition("/")[2] == "kubectl-kiln" else "kiln"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Raises only in case of a bug."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # set by `kilnwork.cli` during imports
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.stdout is None:  # the caller closed it, as `>&-` does
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    try:
        return _run(args)
    except (BrokenPipeError, _OutputClosed):
        _discard_output()
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        _discard_output()
        click.echo(f"error: cannot write the output: {error.strerror}", err=True)
        return exits.Exit.FAILED
    return exits.Exit.OK


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _run(args: list[str]) -> int:
    """Run a command line; print errors to standard error and return the exit code."""
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


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that Python's flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
