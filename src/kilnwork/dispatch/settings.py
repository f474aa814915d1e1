"""Settings of `python -m kilnwork.dispatch`: its arguments, and one environment variable.

The variable is for measurements. Settings are read once at start. `sdk.local` writes the arguments,
so there is no help text; tokens are passed in files, never as arguments.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kilnwork.kit import errors

SYNC_DELAY = "KILN_JOURNAL_SYNC_DELAY_S"
"""Environment variable: seconds by which each commit of the journal takes longer; for measuring
only.
"""

IDLE_S = 60.0
"""Default seconds for which a durable dispatcher waits for a driver when there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherSettings:
    """The settings of one dispatcher process; see the module.

    `listener`: inherited descriptor of a listening Unix socket. `token_file`: file that holds the
    token of workers and drivers. `directory`: directory of the journal; None: keep nothing, and
    exit with the owner. `secrets`: a directory whose file NAME/KEY holds the value of a key of a
    Secret; None: there are no Secrets. `owner`: inherited descriptor that becomes readable when the
    owner exits; None: the dispatcher has no owner. `idle_s`: seconds without work and drivers after
    which a dispatcher without an owner exits. `scratch`: a directory to remove at the end; None:
    there is none. `sync_delay_s`: see `SYNC_DELAY`.
    """

    listener: int
    token_file: Path
    directory: Path | None
    blobs: Path
    secrets: Path | None
    owner: int | None
    idle_s: float
    scratch: Path | None
    sync_delay_s: float


def from_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> DispatcherSettings:
    """Return the settings that the arguments and the environment give.

    Raises ConfigurationError, which names the argument and the expected value.
    """
    given = _pairs(arguments)
    volatile = given.pop("--volatile", None) is not None
    directory = given.pop("--directory", None)
    if volatile == (directory is not None):
        raise errors.ConfigurationError("give either --directory DIR or --volatile")
    secrets = given.pop("--secrets", None)
    owner, scratch = given.pop("--owner-fd", None), given.pop("--scratch", None)
    if volatile and owner is None:
        raise errors.ConfigurationError("--volatile needs --owner-fd: it ends with its owner")
    settings = DispatcherSettings(
        listener=_descriptor("--listen-fd", _needed(given, "--listen-fd")),
        token_file=Path(_needed(given, "--token-file")),
        directory=None if directory is None else Path(directory),
        blobs=Path(_needed(given, "--blobs")),
        secrets=None if secrets is None else Path(secrets),
        owner=None if owner is None else _descriptor("--owner-fd", owner),
        idle_s=_seconds("--idle-seconds", given.pop("--idle-seconds", str(IDLE_S))),
        scratch=None if scratch is None else Path(scratch),
        sync_delay_s=_seconds(SYNC_DELAY, environment.get(SYNC_DELAY) or "0"),
    )
    if given:
        raise errors.ConfigurationError(f"unknown argument {next(iter(given))}")
    return settings


def _pairs(arguments: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = iter(arguments)
    for name in rest:
        value = "" if name == "--volatile" else next(rest, None)
        if value is None:
            raise errors.ConfigurationError(f"{name} needs a value")
        given[name] = value
    return given


def _needed(given: dict[str, str], name: str) -> str:
    value = given.pop(name, "")
    if not value:
        raise errors.ConfigurationError(f"{name} is missing")
    return value


def _descriptor(name: str, text: str) -> int:
    try:
        descriptor = int(text)
        # Checked here, where the name of the argument is known.
        os.fstat(descriptor)
    except (ValueError, OSError) as error:
        raise errors.ConfigurationError(f"{name}: {text!r} is no open descriptor") from error
    return descriptor


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise errors.ConfigurationError(f"{name}: {text!r} is no number of seconds")
    return seconds
