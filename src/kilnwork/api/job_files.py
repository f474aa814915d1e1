"""Addresses of the files of file jobs, as sources of ponds have them: `kiln:JOB/FOLDER`.

Used by validation of DataPonds, by their controller and by the agents. Pure.
"""

from typing import NamedTuple
from urllib import parse

SCHEME = "kiln"
PREFIX = f"{SCHEME}:"
FOLDERS = ("results", "parts", "errors", "input")
"""Of a file job: its result as one file, the result of each part, its bad records, its input."""


class JobFolder(NamedTuple):
    """One folder of a file job. `job`: its id, UUID or name."""

    job: str
    folder: str

    @property
    def uri(self) -> str:
        return f"{PREFIX}{parse.quote(self.job, safe='')}/{self.folder}"


def parse_uri(uri: str) -> JobFolder:
    """Read `kiln:JOB` (its results) or `kiln:JOB/FOLDER`. Raises ValueError."""
    return of_path(parse.unquote(uri.removeprefix(PREFIX)), uri)


def of_path(path: str, shown: str) -> JobFolder:
    """Read `JOB` or `JOB/FOLDER`. Raises ValueError, which names it as `shown`."""
    job, _, folder = path.strip("/").partition("/")
    if not job:
        raise ValueError(f"{shown!r} names no file job: write {PREFIX}JOB/FOLDER")
    if folder and folder not in FOLDERS:
        raise ValueError(
            f"{shown!r}: a file job has the folders {', '.join(FOLDERS)}, and no {folder!r}"
        )
    return JobFolder(job, folder or FOLDERS[0])
