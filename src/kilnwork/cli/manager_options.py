"""Options of the manager, which `kiln manager` takes and `kiln install` writes into its Pod.

Checked by both in the same way, so that what `kiln install` prints is what the manager accepts.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kilnwork.api import manager
from kilnwork.cli import limits
from kilnwork.cli import options as common

Function = TypeVar("Function", bound=Callable[..., Any])


class LeaseLength(common.Duration):
    """A duration that a lease may have."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        seconds = super().convert(value, param, ctx)
        least, most = manager.MIN_ABSENCE_S, manager.MAX_ABSENCE_S
        if not least <= seconds <= most:
            self.fail(f"{value!r}: at least {least:g}s, at most {most:g}s", param, ctx)
        return seconds


def options(function: Function) -> Function:
    """Add them: the lease, and the bounds of the Jobs API."""
    lease = click.option(
        "--lease",
        type=LeaseLength(),
        metavar="DURATION",
        default=f"{manager.ABSENCE_S:g}s",
        show_default=True,
        help="How long the manager may be away without a task being ended: for a rollout, or a"
        " volume that moves. Tasks of a machine that is cut off run again elsewhere no sooner.",
    )
    return lease(limits.options(function))


def chosen_arguments(ctx: click.Context) -> tuple[str, ...]:
    """Those that the user gave, as arguments of `kiln manager`."""
    found = []
    for param in ctx.command.params:
        if param.name not in _NAMES or param.name is None:
            continue
        if ctx.get_parameter_source(param.name) is click.core.ParameterSource.DEFAULT:
            continue
        found.append(f"{param.opts[0]}={_text(param.type, ctx.params[param.name])}")
    return tuple(found)


def _text(kind: object, value: Any) -> str:
    if isinstance(kind, limits.Size):
        return limits.size_text(value)
    return f"{value:g}s" if isinstance(kind, LeaseLength) else str(value)


@options
def _taken(**_: Any) -> None:
    """Carries the options, for their names."""


_NAMES = frozenset(one.name for one in getattr(_taken, "__click_params__", ()))
