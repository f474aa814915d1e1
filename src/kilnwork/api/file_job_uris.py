"""Addresses of the files of file jobs, in the form of pond sources: `kiln:JOB/DIRECTORY`.

Used by the validation of DataPonds and SyncSets, by the controller of DataPonds, by the agents and
by `kiln data`. No I/O.
"""

from typing import NamedTuple
from urllib import parse

SCHEME = "kiln"
PREFIX = f"{SCHEME}:"
DIRECTORIES = ("results", "parts", "errors", "input")
"""Directories of a file job: its result as one file, the result of each part, its bad records,
its input."""


class JobDirectory(NamedTuple):
    """One directory of a file job."""

    job: str
    """Id (short or UUID) or name of the job."""
    directory: str

    @property
    def uri(self) -> str:
        return f"{PREFIX}{parse.quote(self.job, safe='')}/{self.directory}"


def parse_uri(uri: str) -> JobDirectory:
    """Parse `kiln:JOB` (its results) or `kiln:JOB/DIRECTORY`. Raises ValueError."""
    return of_path(parse.unquote(uri.removeprefix(PREFIX)), uri)


def of_path(path: str, shown: str) -> JobDirectory:
    """Parse `JOB` or `JOB/DIRECTORY`. Raises ValueError, whose message contains `shown` as the
    address."""
    job, _, directory = path.strip("/").partition("/")
    if not job:
        raise ValueError(f"{shown!r} names no file job: write {PREFIX}JOB/DIRECTORY")
    if directory and directory not in DIRECTORIES:
        raise ValueError(
            f"{shown!r}: a file job has the directories {', '.join(DIRECTORIES)}, not {directory!r}"
        )
    return JobDirectory(job, directory or DIRECTORIES[0])
