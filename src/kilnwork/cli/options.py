"""Options that many commands share: server, namespace, and output format.

`-n`, `-A`, `--kubeconfig` and `--context` may stand before or after the command's name; the last
one wins. Commands receive them as one `ServerTarget`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from kilnwork.api import names

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """The server, user and namespace that a command uses; None stands for that of the
    kubeconfig.
    """

    namespace: str | None = None
    all_namespaces: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    data: str | None = None
    """The directory of a `kiln.start(DIRECTORY)`, or the data directory of a `kiln up`."""


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if not value or param.name is None:
        return
    if param.name == "namespace" and not names.is_dns_label(str(value)):
        raise click.BadParameter(
            f"{str(value)[:100]!r}: a namespace is up to 63 lower-case letters, digits and dashes",
            ctx=ctx,
            param=param,
        )
    chosen = replace(ctx.obj or ServerTarget(), **{param.name: value})
    link: click.Context | None = ctx
    while link is not None:
        link.obj = chosen
        link = link.parent


def target(function: Function) -> Function:
    """Add the options that choose the server to a command; `current()` returns their values.

    For commands that work in one namespace: `-A` is parsed so that it can be refused with an
    explanation, and is not in the help.
    """
    return _target(function, lists=False)


def list_target(function: Function) -> Function:
    """Add the options that choose the server, with `-A`, to a command that lists."""
    return _target(function, lists=True)


def _target(function: Function, *, lists: bool) -> Function:
    add = [
        click.option(
            "-n",
            "--namespace",
            metavar="NS",
            help="Namespace; default: that of the kubeconfig context.",
            **_SILENT,
        ),
        click.option(
            "-A",
            "--all-namespaces",
            is_flag=True,
            hidden=not lists,
            help="Use all namespaces; for commands that list.",
            **_SILENT,
        ),
        click.option(
            "--kubeconfig",
            metavar="FILE",
            help="Kubeconfig file; default: $KUBECONFIG, then the file that `kiln up` writes.",
            **_SILENT,
        ),
        click.option(
            "--context", metavar="NAME", help="Context of the kubeconfig to use.", **_SILENT
        ),
    ]
    for option in reversed(add):
        function = option(function)
    return function


def data(function: Function) -> Function:
    """Add the option `--data` to a command that needs only the tasks of a server."""
    add = click.option(
        "--data",
        "--from",
        metavar="DIRECTORY",
        help="Read the journal in this directory of `kiln.start(DIRECTORY)` or `kiln up` instead"
        " of asking a server.",
        **_SILENT,
    )
    return add(function)


_SILENT: dict[str, Any] = {"expose_value": False, "callback": _remember}


def current() -> ServerTarget:
    """Return the values of the server options for the running command."""
    found = click.get_current_context().obj
    return found if isinstance(found, ServerTarget) else ServerTarget()


def output(*forms: str) -> Callable[[Function], Function]:
    """Return a decorator that adds `-o` with the given formats; the default is text for people."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(forms),
        default=None,
        help="Output format; default: text for people.",
    )


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Option type that converts a text with the function `parse`.

    The text of the function's ValueError becomes the usage error.
    """

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(text: str) -> float:
    """Return the seconds in a duration such as `90`, `1.5s`, `2m`, `1h30m` or `250ms`.

    Raises ValueError for anything else.
    """
    rest, total = text.strip(), 0.0
    if not rest:
        raise ValueError("a duration is missing: write it as 30s, 5m or 1h30m")
    while rest:
        digits = 0
        while digits < len(rest) and (rest[digits].isdigit() or rest[digits] == "."):
            digits += 1
        letters = digits
        while letters < len(rest) and rest[letters].isalpha():
            letters += 1
        number, unit = rest[:digits], rest[digits:letters] or "s"
        if number.count(".") > 1 or not number.strip(".") or unit not in _UNITS:
            raise ValueError(f"{text!r} is not a duration: write it as 30s, 5m or 1h30m")
        total += float(number) * _UNITS[unit]
        rest = rest[letters:]
    return total


DURATION = Parsed("duration", parse_duration)
"""Option type of a duration in seconds; accepts units as kubectl does."""
