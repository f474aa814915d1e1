"""`kiln tasks`: tasks of the journal, those that are no objects too."""

from typing import Any, get_args

import click

from kilnwork.api import task as api_task
from kilnwork.cli import completing, journal, kinds, options, session


@click.command()
@options.list_target
@options.data
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
    type=click.IntRange(min=0),
    help=f"The newest so many, 0 for all; default {journal.LIMIT}, and all with -o"
    " json, yaml or name.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, as --limit 0.")
@click.option(
    "--sort",
    type=click.Choice(get_args(journal.Measure)),
    help="Those with most first: of time (took), CPU, or memory (peak); default the newest.",
)
@click.option("--no-headers", is_flag=True, help="Leave out the line of column names.")
@options.output("wide", "json", "yaml", "name")
def command(form: str | None, **asked: Any) -> None:
    """List tasks, newest first: Task objects, and those that programs have submitted or spawned.

    \b
    kiln tasks --state Failed
    kiln tasks --function count_words:count -o name
    kiln tasks --parent 5c1f2a10
    kiln tasks --sort peak --limit 10 -o wide

    ID is the end of the id; it or the name is what `kiln logs`, `result`, `why`, `wait`, `cancel`,
    `retry` and `delete` take. NAME is the name of a task, or the function that it calls. TOOK is
    the time from its first start to its end, or until now.
    """
    wanted = {key: str(asked[key]) for key in ("state", "function") if asked[key]}
    if asked["parent"]:
        wanted["parent"] = kinds.task_name(asked["parent"])
    if asked["spawned"]:
        wanted["declared"] = "false"
    limit = 0 if asked["everything"] else asked["limit"]
    headers = not asked["no_headers"]
    sort = asked["sort"]
    session.run(lambda s: journal.show(s, wanted, form, limit=limit, headers=headers, sort=sort))
