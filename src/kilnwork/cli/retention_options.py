"""Options of `kiln up`, `kiln manager` and `kiln install` for the retention of finished tasks.

They limit the number, age and size of finished tasks.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kilnwork.cli import jobs_api_limits
from kilnwork.cli import options as common
from kilnwork.dispatch.hub import retention

Function = TypeVar("Function", bound=Callable[..., Any])

_DAY_S = 86_400


def options(function: Function) -> Function:
    """Add the options for the retention of finished tasks to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def chosen(given: dict[str, Any]) -> retention.RetentionLimits:
    """Remove the values of the retention options from `given` and return them as limits."""
    return retention.RetentionLimits(
        given.pop("keep_for"), given.pop("keep_tasks"), given.pop("keep_size")
    )


_OPTIONS = (
    click.option(
        "--keep-for",
        type=common.DURATION,
        default=f"{retention.KEEP_S / _DAY_S:g}d",
        show_default=True,
        metavar="DURATION",
        help="How long a finished task that is not a Task object is kept, with its output and"
        " result.",
    ),
    click.option(
        "--keep-tasks",
        type=click.IntRange(min=0),
        metavar="N",
        help="Delete the oldest finished tasks earlier when there are more than N.",
    ),
    click.option(
        "--keep-size",
        type=jobs_api_limits.SIZE,
        metavar="SIZE",
        help="Delete the oldest finished tasks earlier when journal, output and results take more"
        " space than this.",
    ),
)
