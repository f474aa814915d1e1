"""`kiln tasks`: list the tasks of the journal, including those that are not Task objects."""

from collections.abc import Mapping
from typing import Any, get_args

import click

from kilnwork.api import task as api_task
from kilnwork.cli import function_totals, kinds, options, session, shell_completion, task_lists


@click.command()
@options.list_target
@options.data
@click.option(
    "--state",
    type=click.Choice([state.value for state in api_task.State]),
    help="Only tasks in this state.",
)
@click.option(
    "--parent",
    metavar="NAME|ID",
    help="Only children of this task.",
    shell_complete=shell_completion.tasks,
)
@click.option("--function", metavar="MODULE:NAME", help="Only calls of this Python function.")
@click.option("--spawned", is_flag=True, help="Only tasks that are not Task objects.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show the newest N tasks, 0 for all; default: {task_lists.LIMIT}, all with -o json,"
    f" yaml or name.",
)
@click.option("--all", "everything", is_flag=True, help="Show all tasks; same as --limit 0.")
@click.option(
    "--sort",
    type=click.Choice(get_args(task_lists.Measure), case_sensitive=False),
    help="Sort by time (took), CPU time or peak memory, highest first; default: newest first."
    " With --by function, default: took.",
)
@click.option(
    "--by",
    type=click.Choice(["function"]),
    help="Show totals per function instead of tasks.",
)
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
@options.output("wide", "json", "yaml", "name")
def command(form: str | None, **asked: Any) -> None:
    """List tasks, newest first: Task objects and tasks that programs or other tasks submitted.

    \b
    kiln tasks
    kiln tasks --state Failed
    kiln tasks --function count_words:count -o name
    kiln tasks --parent 5c1f2a10
    kiln tasks --sort peak --limit 10 -o wide
    kiln tasks --by function

    ID is the end of the task's id. `kiln logs`, `result`, `why`, `wait`, `cancel`, `retry` and
    `delete` accept the ID or the name. NAME is the task's name or, if it has none, the Python
    function that it calls. TOOK is the time from its first start to its end, or until now.

    With --by function each line is a function: TASKS, TOOK and CPU are totals, MEAN and MAX the
    mean and longest time of a call, PEAK the highest memory use, and SLOWEST the ID of the longest
    call.
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
        session.run(lambda s: function_totals.show(s, wanted, form, by=by, headers=headers))
        return
    session.run(lambda s: task_lists.show(s, wanted, form, limit=limit, headers=headers, sort=sort))


def _refuse_for_totals(asked: Mapping[str, Any], form: str | None) -> None:
    if asked["limit"] is not None:
        raise click.UsageError(
            "--limit cannot be combined with --by function, which counts all tasks"
        )
    if form not in (None, "json", "yaml"):
        raise click.UsageError(
            f"-o {form} cannot be combined with --by function: use -o json or yaml"
        )
