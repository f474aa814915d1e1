"""Options that bound the Jobs API of a server, of `kiln up` and `kiln manager` alike."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kilnwork.cli import options as common
from kilnwork.server.jobs import settings, source_sizing

Function = TypeVar("Function", bound=Callable[..., Any])

_UNITS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _size(text: str) -> int:
    """Bytes, with binary units as Kubernetes writes them: 500Mi, 10Gi."""
    found = re.fullmatch(r"([1-9][0-9]{0,14})(|Ki|Mi|Gi|Ti)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: write it as 500Mi, 10Gi or 1Ti")
    return int(found[1]) << _UNITS[found[2]]


SIZE = common.Parsed("size", _size)


def size_text(number: int) -> str:
    """As people would write it: 10Gi for 10737418240."""
    unit = next(unit for unit in reversed(_UNITS) if number % (1 << _UNITS[unit]) == 0)
    return f"{number >> _UNITS[unit]}{unit}"


def options(function: Function) -> Function:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def chosen(
    given: dict[str, Any], *, source: source_sizing.Source | None = None
) -> settings.JobsApiSettings:
    """Take them out of what a command was given."""
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
        help="Largest upload of a file job, as it is sent; default as the disk has room.",
    ),
    click.option(
        "--max-input",
        type=SIZE,
        metavar="SIZE",
        default="1Ti",
        show_default=True,
        help="Largest file as it is stored.",
    ),
    click.option(
        "--max-unpacked",
        type=SIZE,
        metavar="SIZE",
        default="64Gi",
        show_default=True,
        help="Largest file that gzip may unpack to; others get 413.",
    ),
    click.option(
        "--max-unpack-ratio",
        type=click.IntRange(1, 10_000),
        metavar="N",
        default=_DEFAULT.unpack_ratio,
        show_default=True,
        help="Unpacked bytes for each compressed one, after the first 64Mi; others get 413.",
    ),
    click.option(
        "--max-uploads",
        type=click.IntRange(1, 100_000),
        default=_DEFAULT.uploads,
        show_default=True,
        help="Uploads at the same time; others get 429.",
    ),
    click.option(
        "--max-downloads",
        type=click.IntRange(1, 100_000),
        default=_DEFAULT.downloads,
        show_default=True,
        help="Downloads of results, errors and inputs at the same time; others get 429.",
    ),
    click.option(
        "--max-line",
        type=SIZE,
        metavar="SIZE",
        default="64Mi",
        show_default=True,
        help="Longest record that a job may ask for (maxLineBytes); it may be in memory.",
    ),
    click.option(
        "--max-files",
        type=click.IntRange(1, 100_000),
        metavar="N",
        default=_DEFAULT.files_per_user,
        show_default=True,
        help="Resumable uploads of one user that are not complete; more get 429.",
    ),
    click.option(
        "--max-files-size",
        type=SIZE,
        metavar="SIZE",
        help="All resumable uploads of one user that are kept; more get 507."
        " Default three quarters of the disk's room.",
    ),
    click.option(
        "--jobs-per-second",
        type=click.FloatRange(0, min_open=True),
        metavar="N",
        help=f"File jobs that one user may make, after a burst of {_DEFAULT.burst}; more get 429."
        " Default any number.",
    ),
)
