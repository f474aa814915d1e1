"""`kiln logs`: what a task printed, from the journal's log files; they outlive Pods and objects."""

import sys

import click

from kilnwork.cli import options, session


@click.command()
@click.argument("task", metavar="NAME|ID")
@options.target
@click.option("-f", "--follow", is_flag=True, help="Go on until the task is over.")
@click.option("--run", type=click.IntRange(min=1), help="Of this run; default the newest.")
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt; default the newest.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last N lines.")
def command(
    task: str,
    follow: bool,  # noqa: FBT001
    run: int | None,
    attempt: int | None,
    tail: int | None,
) -> None:
    """Print what a task printed, standard output and error in one.

    With -f and no --attempt the next attempts follow, until the task is over.
    """
    asked = {"run": run, "attempt": attempt, "tail": tail}
    query = {key: str(value) for key, value in asked.items() if value is not None}
    if follow:
        query["follow"] = "true"
    session.run(lambda s: stream(s, task.removeprefix("task/"), query))


async def stream(s: session.Session, name: str, query: dict[str, str]) -> None:
    """Copy a task's log to standard output as it comes."""
    async for some in s.stream(s.tasks_path(name, "logs"), query=query):
        sys.stdout.buffer.write(some)
        sys.stdout.buffer.flush()
