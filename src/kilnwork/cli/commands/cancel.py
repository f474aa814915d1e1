"""`kiln cancel`: stop tasks by their killTimestamp, or by the journal when they have no object."""

from collections.abc import Awaitable, Callable, Sequence

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    completing,
    file_jobs,
    file_names,
    following,
    kinds,
    options,
    session,
    waiting,
)
from kilnwork.kit import clock, http_types
from kilnwork.kube import errors as kube_errors


@click.command()
@click.argument(
    "tasks",
    nargs=-1,
    required=True,
    metavar="NAME|ID…",
    shell_complete=completing.subjects,
)
@options.target
@click.option("--wait", is_flag=True, help="Wait until they have stopped.")
@click.option("--timeout", type=options.DURATION, default=None, help="Wait no longer than this.")
def command(tasks: tuple[str, ...], wait: bool, timeout: float | None) -> None:  # noqa: FBT001
    """Stop tasks: SIGTERM, their grace period, SIGKILL to all they started.

    \b
    kiln cancel hello
    kiln tasks --state Running --function train:fit -o name | xargs kiln cancel --wait

    A Python function gets kiln.Cancelled raised in it instead of SIGTERM. Children are stopped with
    their parent. A task that is over already stays as it is.

    The id or name of a file job, or file/NAME, stops that job; parts that were done before can
    still be read.
    """
    session.run(lambda s: _all(s, tasks, wait=wait, timeout_s=timeout))


async def _all(
    s: session.Session, words: Sequence[str], *, wait: bool, timeout_s: float | None
) -> None:
    ends: list[Callable[[], Awaitable[object]]] = []

    async def stop_task(word: str) -> None:
        name = kinds.task_name(word)
        click.echo(f"{name} {await _cancel(s, name)}")
        ends.append(lambda: waiting.for_final(s, name, timeout_s=timeout_s))

    async def stop_job(job: file_jobs.Job) -> None:
        found = await file_jobs.tell(s, job["id"], "cancel")
        over = file_jobs.phase(found).final
        how = f"is already {file_jobs.phase(found)}" if over else "is being stopped"
        click.echo(f"job {job['id']} {how}")
        ends.append(lambda: following.until_over(s, job["id"], timeout_s=timeout_s))

    try:
        await file_names.each(
            words, lambda word: file_names.either(s, word, task=stop_task, job=stop_job)
        )
    finally:
        if wait:
            for end in ends:
                await end()


async def _cancel(s: session.Session, name: str) -> str:
    namespace = s.one_namespace()
    path = s.path(api_kinds.TASKS, name, namespace=namespace)
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
    await s.ask("PATCH", path, body=change, content_type=http_types.MERGE_PATCH)
    return "is being stopped"
