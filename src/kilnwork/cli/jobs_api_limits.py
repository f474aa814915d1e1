"""Options of `kiln up`, `kiln manager` and `kiln install` that limit the Jobs API."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kilnwork.cli import options as common
from kilnwork.server.jobs import aksjobscheduler_settings, settings

Function = TypeVar("Function", bound=Callable[..., Any])

_UNITS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _size(text: str) -> int:
    """Return the number of bytes in a size with binary units as in Kubernetes: 500Mi, 10Gi."""
    found = re.fullmatch(r"([1-9][0-9]{0,14})(|Ki|Mi|Gi|Ti)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size: write it as 500Mi, 10Gi or 1Ti")
    return int(found[1]) << _UNITS[found[2]]


SIZE = common.Parsed("size", _size)


def size_text(number: int) -> str:
    """Return a number of bytes as text in the largest unit that divides it: 10Gi for
    10737418240.
    """
    unit = next(unit for unit in reversed(_UNITS) if number % (1 << _UNITS[unit]) == 0)
    return f"{number >> _UNITS[unit]}{unit}"


def options(function: Function) -> Function:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def chosen(
    given: dict[str, Any], *, source: aksjobscheduler_settings.Source | None = None
) -> settings.JobsApiSettings:
    """Remove the values of the Jobs API options from `given` and return them as settings."""
    return settings.JobsApiSettings(
        most_body_bytes=given.pop("max_upload"),
        most_stored_bytes=given.pop("max_input"),
        unpacked_bytes=given.pop("max_unpacked"),
        unpack_ratio=given.pop("max_unpack_ratio"),
        uploads=given.pop("max_uploads"),
        downloads=given.pop("max_downloads"),
        most_line_bytes=given.pop("max_line"),
        files_per_user=given.pop("max_files"),
        files_bytes_per_user=given.pop("max_files_size"),
        posts_per_second=given.pop("jobs_per_second"),
        source=source,
    )


_DEFAULT = settings.JobsApiSettings()
_OPTIONS = (
    click.option(
        "--max-upload",
        type=SIZE,
        metavar="SIZE",
        help="Maximum size of the uploaded file of a file job, as sent (compressed or not);"
        " default: limited by free disk space.",
    ),
    click.option(
        "--max-input",
        type=SIZE,
        metavar="SIZE",
        default="1Ti",
        show_default=True,
        help="Maximum size of an input file as stored.",
    ),
    click.option(
        "--max-unpacked",
        type=SIZE,
        metavar="SIZE",
        default="64Gi",
        show_default=True,
        help="Maximum size of a gzip input after decompression; larger files get 413.",
    ),
    click.option(
        "--max-unpack-ratio",
        type=click.IntRange(1, 10_000),
        metavar="N",
        default=_DEFAULT.unpack_ratio,
        show_default=True,
        help="Maximum ratio of decompressed to compressed bytes, checked after the first 64 MiB;"
        " higher ratios get 413.",
    ),
    click.option(
        "--max-uploads",
        type=click.IntRange(1, 100_000),
        default=_DEFAULT.uploads,
        show_default=True,
        metavar="N",
        help="Maximum number of concurrent uploads; further ones get 429.",
    ),
    click.option(
        "--max-downloads",
        type=click.IntRange(1, 100_000),
        default=_DEFAULT.downloads,
        show_default=True,
        metavar="N",
        help="Maximum number of concurrent downloads of results, errors, inputs and manifests;"
        " further ones get 429. One user may have three quarters of them.",
    ),
    click.option(
        "--max-line",
        type=SIZE,
        metavar="SIZE",
        default="64Mi",
        show_default=True,
        help="Maximum record length that a job may request with maxLineBytes; CSV and JSON array"
        " records are held in memory.",
    ),
    click.option(
        "--max-files",
        type=click.IntRange(1, 100_000),
        metavar="N",
        default=_DEFAULT.files_per_user,
        show_default=True,
        help="Maximum number of incomplete resumable uploads per user; further ones get 429.",
    ),
    click.option(
        "--max-files-size",
        type=SIZE,
        metavar="SIZE",
        help="Maximum total size of a user's resumable uploads; more gets 507. Default: three"
        " quarters of the free disk space.",
    ),
    click.option(
        "--jobs-per-second",
        type=click.FloatRange(0, min_open=True),
        metavar="N",
        help=f"File jobs that a user may create per second, after a burst of {_DEFAULT.burst}; more"
        f" get 429. Default: no limit.",
    ),
)
