"""`kiln tasks`: tasks of the journal, those that are no objects too."""

from typing import Any

import click

from kilnwork.api import task as api_task
from kilnwork.cli import completing, journal, kinds, options, render, session

_LIMIT = 100


@click.command()
@options.target
@click.option(
    "--state",
    type=click.Choice([state.value for state in api_task.State]),
    help="Only in this state.",
)
@click.option(
    "--parent",
    metavar="NAME|ID",
    help="Only children of this task.",
    shell_complete=completing.tasks,
)
@click.option("--function", metavar="MODULE:NAME", help="Only calls of this Python function.")
@click.option("--spawned", is_flag=True, help="Only tasks that are no objects.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LIMIT,
    show_default=True,
    help="The newest so many; see --all.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@click.option("--no-headers", is_flag=True, help="Leave out the line of column names.")
@options.output("wide", "json", "yaml", "name")
def command(form: str | None, **asked: Any) -> None:
    """List tasks, newest first: Task objects, and those that programs have submitted or spawned.

    \b
    kiln tasks --state Failed
    kiln tasks --function count_words:count --all -o name
    kiln tasks --parent 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10

    What is shown as ID, or as NAME, is what `kiln logs`, `why`, `cancel` and `retry` take.
    """
    wanted = {key: str(asked[key]) for key in ("state", "function") if asked[key]}
    if asked["parent"]:
        wanted["parent"] = kinds.task_name(asked["parent"])
    if asked["spawned"]:
        wanted["declared"] = "false"
    limit = None if asked["everything"] else asked["limit"]
    session.run(lambda s: _list(s, wanted, limit, form, headers=not asked["no_headers"]))


async def _list(
    s: session.Session,
    wanted: dict[str, str],
    limit: int | None,
    form: str | None,
    *,
    headers: bool,
) -> None:
    more = None if limit is None else limit + 1  # one more says whether there are more
    found = [item async for item in journal.listed(s, wanted=wanted, limit=more)]
    items = found[:limit]
    if form in ("json", "yaml"):
        click.echo(render.document({"items": items}, form), nl=False)
    elif form == "name":
        for item in items:
            click.echo(item["id"])
    elif not items:
        click.echo(f"nothing found in namespace {s.namespace}", err=True)
    else:
        lines = journal.table(items, wide=form == "wide")
        for line in lines if headers else lines[1:]:
            click.echo(line)
    if len(found) > len(items):
        click.echo(f"these are the newest {limit}: --all shows all, --limit more", err=True)
