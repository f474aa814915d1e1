"""`kiln tasks`: tasks of the journal, those that are no objects too."""

from collections.abc import Mapping
from typing import Any, get_args

import click

from kilnwork.api import task as api_task
from kilnwork.cli import kinds, options, session, shell_completion, task_lists, task_totals


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
    shell_complete=shell_completion.tasks,
)
@click.option("--function", metavar="MODULE:NAME", help="Only calls of this Python function.")
@click.option("--spawned", is_flag=True, help="Only tasks that are no objects.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"The newest so many, 0 for all; default {task_lists.LIMIT}, and all with -o"
    " json, yaml or name.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, as --limit 0.")
@click.option(
    "--sort",
    type=click.Choice(get_args(task_lists.Measure), case_sensitive=False),
    help="Those with most first: of time (took), CPU, or memory (peak); default the newest.",
)
@click.option(
    "--by",
    type=click.Choice(["function"]),
    help="Totals instead of tasks: how many, failed, time, CPU and memory of each function.",
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
    kiln tasks --by function

    ID is the end of the id; it or the name is what `kiln logs`, `result`, `why`, `wait`, `cancel`,
    `retry` and `delete` take. NAME is the name of a task, or the function that it calls. TOOK is
    the time from its first start to its end, or until now. With --by function TOOK, CPU and TASKS
    are totals of its calls, MEAN and MAX are of one, PEAK is the highest, and SLOWEST the ID of the
    call that took longest; --sort says what they are sorted by.
    """
    wanted = {key: str(asked[key]) for key in ("state", "function") if asked[key]}
    if asked["parent"]:
        wanted["parent"] = kinds.task_name(asked["parent"])
    if asked["spawned"]:
        wanted["declared"] = "false"
    limit = 0 if asked["everything"] else asked["limit"]
    headers, sort = not asked["no_headers"], asked["sort"]
    if asked["by"]:
        _refuse_for_totals(asked, form)
        by: task_lists.Measure = sort or "took"
        session.run(lambda s: task_totals.show(s, wanted, form, by=by, headers=headers))
        return
    session.run(lambda s: task_lists.show(s, wanted, form, limit=limit, headers=headers, sort=sort))


def _refuse_for_totals(asked: Mapping[str, Any], form: str | None) -> None:
    if asked["limit"] is not None:
        raise click.UsageError("--limit is of tasks: --by function counts all of them")
    if form not in (None, "json", "yaml"):
        raise click.UsageError(f"-o {form} is of tasks: with --by function use -o json or yaml")
