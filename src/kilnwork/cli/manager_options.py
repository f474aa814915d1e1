"""Options of the manager, which `kiln manager` takes and `kiln install` writes into its Pod.

Both commands check them in the same way, so that the manager accepts what `kiln install` prints.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from urllib import parse

import click

from kilnwork.api import manager_access, names
from kilnwork.cli import jobs_api_limits, retention_options
from kilnwork.cli import options as common

Function = TypeVar("Function", bound=Callable[..., Any])
_EVERYWHERE = ("0.0.0.0", "[::]")  # noqa: S104 - refused, not listened on


def _lease_length(text: str) -> float:
    """Return a duration in seconds. Raises ValueError outside of the range allowed for the
    Lease.
    """
    seconds = common.parse_duration(text)
    least, most = manager_access.MIN_ABSENCE_S, manager_access.MAX_ABSENCE_S
    if not least <= seconds <= most:
        raise ValueError(f"{text!r}: at least {least:g}s, at most {most:g}s")
    return seconds


LEASE_LENGTH = common.Parsed("duration", _lease_length)


def _address(text: str) -> tuple[str, int]:
    """Return the host and the port in HOST:PORT, with brackets around an IPv6 address."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ValueError(f"{text!r}: write HOST:PORT, such as 0.0.0.0:7443")
    return host.strip("[]"), int(port)


ADDRESS = common.Parsed("HOST:PORT", _address)
"""Option type of an address to listen on."""


def advertised(*also: str) -> common.Parsed:
    """Return the option type of an address to which other processes connect.

    It accepts HOST:PORT and the words of `also`.
    """

    def parse(text: str) -> str:
        host, _, port = text.rpartition(":")
        known = port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
        usable = (
            known and host.strip("[]") and not set(host) & set("/ ") and host not in _EVERYWHERE
        )
        if text not in also and not usable:
            wanted = "write HOST:PORT that others reach, such as 10.0.0.5:7443"
            raise ValueError(f"{text!r}: {wanted}")
        return text

    return common.Parsed("HOST:PORT", parse)


def _base_url(text: str) -> str:
    """Return an http or https URL without a slash at its end."""
    parts = parse.urlsplit(text)
    known = parts.scheme in ("http", "https") and parts.hostname
    if not known or parts.query or parts.fragment or "@" in parts.netloc or set(text) & set(" \t"):
        raise ValueError(
            f"{text!r}: write http(s)://HOST[:PORT][/PATH], such as https://kiln.example"
        )
    return text.rstrip("/")


BASE_URL = common.Parsed("URL", _base_url)


def _kind(text: str) -> str:
    """Check the name of one or more kinds: PLURAL.GROUP, *.GROUP, a plural of the core group,
    or *.
    """
    plural, _, group = text.partition(".")
    usable = text == "*" or (
        (plural == "*" or names.is_dns_label(plural))
        and (bool(group) or plural != "*")
        and not (group and names.subdomain_problem(group))
    )
    if not usable:
        raise ValueError(f"{text!r}: write PLURAL.GROUP, such as books.example.com, or *.GROUP")
    return text


KIND = common.Parsed("KIND", _kind)


def allowed_kinds(*default: str) -> Callable[[Function], Function]:
    """Return a decorator that adds the option for the kinds of objects that tasks may make."""
    return click.option(
        "--allow-kind",
        "allowed_kinds",
        type=KIND,
        multiple=True,
        metavar="PLURAL.GROUP",
        default=default,
        show_default=True,
        help="Kind of Kubernetes objects that tasks may create, or *.GROUP; repeatable.",
    )


def options(function: Function) -> Function:
    """Add the options of the manager to a command.

    They are for the lease, callbacks, ponds, retention and the limits of the Jobs API.
    """
    lease = click.option(
        "--lease",
        type=LEASE_LENGTH,
        metavar="DURATION",
        default=f"{manager_access.ABSENCE_S:g}s",
        show_default=True,
        help="How long the manager may be unavailable (a rollout, a volume that moves) before"
        " running tasks are lost. Tasks of a worker that lost its connection are restarted"
        " elsewhere only after this time.",
    )
    callback_url = click.option(
        "--callback-url",
        type=BASE_URL,
        metavar="URL",
        default=None,
        help="URL under which services reach the manager to send results of HTTP requests by"
        " callback, for example an Ingress that forwards /callbacks; default: https:// and the"
        " address of --advertise.",
    )
    ponds = click.option(
        "--ponds",
        is_flag=True,
        help="Serve DataPonds, whose agents run as root on nodes, and check that nodes have room"
        " before the workers of a SyncSet start. The manager then reads Nodes.",
    )
    return lease(callback_url(ponds(jobs_api_limits.options(retention_options.options(function)))))


def chosen_arguments(ctx: click.Context) -> tuple[str, ...]:
    """Return the manager's options that the user gave, as arguments of `kiln manager`."""
    found = []
    for param in ctx.command.params:
        if param.name not in _NAMES or param.name is None:
            continue
        if ctx.get_parameter_source(param.name) is click.core.ParameterSource.DEFAULT:
            continue
        value = ctx.params[param.name]
        found.append(
            param.opts[0] if value is True else f"{param.opts[0]}={_text(param.type, value)}"
        )
    return tuple(found)


def _text(kind: object, value: Any) -> str:
    if kind is jobs_api_limits.SIZE:
        return jobs_api_limits.size_text(value)
    return f"{value:g}s" if kind in (LEASE_LENGTH, common.DURATION) else str(value)


@options
def _taken(**_: Any) -> None:
    """Do nothing: this function only carries the options, so that their names can be listed."""


_NAMES = frozenset(one.name for one in getattr(_taken, "__click_params__", ()))
