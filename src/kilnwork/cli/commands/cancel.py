"""`kiln cancel`: stop tasks by their killTimestamp, or by the journal when they have no object."""

import click

from kilnwork.api import resource
from kilnwork.cli import completing, kinds, options, session, waiting
from kilnwork.kit import clock
from kilnwork.kube import errors as kube_errors
from kilnwork.kube import transport


@click.command()
@click.argument(
    "tasks",
    nargs=-1,
    required=True,
    metavar="NAME|ID…",
    shell_complete=completing.tasks,
)
@options.target
@click.option("--wait", is_flag=True, help="Wait until they have stopped.")
@click.option("--timeout", type=options.Duration(), default=None, help="Wait no longer than this.")
def command(tasks: tuple[str, ...], wait: bool, timeout: float | None) -> None:  # noqa: FBT001
    """Stop tasks: SIGTERM, their grace period, SIGKILL to all they started.

    \b
    kiln cancel hello
    kiln tasks --state Running --function train:fit -o name | xargs kiln cancel --wait

    A Python function gets kiln.Cancelled raised in it instead of SIGTERM. Children are stopped with
    their parent. A task that is over already stays as it is.
    """
    names = [kinds.task_name(word) for word in tasks]

    async def work(s: session.Session) -> None:
        for name in names:
            click.echo(f"{name} {await _cancel(s, name)}")
        if wait:
            for name in names:
                await waiting.for_final(s, name, timeout_s=timeout)

    session.run(work)


async def _cancel(s: session.Session, name: str) -> str:
    namespace = s.one_namespace()
    path = s.path(resource.TASKS, name, namespace=namespace)
    try:
        live = await s.ask("GET", path)
    except kube_errors.NotFound:
        answer = await s.ask("POST", s.tasks_path(name, "cancel"))
        state = str(answer.get("state", ""))
        return f"is already {state}" if waiting.is_final(state) else "is being stopped"
    state = live.get("status", {}).get("state", "")
    if waiting.is_final(state):
        return f"is already {state}"
    if live.get("spec", {}).get("killTimestamp"):
        return "is being stopped already"
    change = {"spec": {"killTimestamp": clock.rfc3339(s.clock.wall())}}
    await s.ask("PATCH", path, body=change, content_type=transport.MERGE_PATCH)
    return "is being stopped"
