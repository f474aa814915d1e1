"""Output source: files that tasks of a run have written on this node, as a source that can be
pinned.

Used by the agent, for `outputs` of a SyncSet. Each attempt of a task writes into a directory of its
own; the directories of the valid attempts are read as one source. Tasks may still be running when
their files are read, and own the directories: nothing is opened through a symbolic link.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from kilnwork.data import errors
from kilnwork.data.pond import origins
from kilnwork.kit import snapshot_path_validation

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutputSource:
    """Source with the files of some attempts (`origins.Source`).

    `directory`: the directory of the run's outputs; `attempts`: names of directories in it. If a
    directory is missing, its attempt wrote nothing.
    """

    def __init__(self, name: str, directory: Path, attempts: Sequence[str]) -> None:
        for attempt in attempts:
            if "/" in attempt or snapshot_path_validation.problem(attempt):
                raise errors.SourceRefused(f"output {name}: {attempt!r} is no attempt of a task")
        self.name = name
        self._directory, self._attempts = directory, tuple(attempts)
        self._where: dict[str, str] = {}
        """The attempt that has written a file, by path."""

    def list(self, selection: origins.Selection) -> Sequence[origins.ListedFile]:
        """Return the selected files of all attempts. Raises SourceRefused if two attempts have
        written the same path, since one would hide the other, and SourceMissing if there are none.
        """
        found: dict[str, origins.ListedFile] = {}
        where: dict[str, str] = {}
        for attempt in self._attempts:
            for one in self._of_attempt(attempt, selection):
                if one.path in found:
                    raise errors.SourceRefused(
                        f"output {self.name}: tasks {_task(where[one.path])} and {_task(attempt)} "
                        f"have both written {one.path!r}: have each task name its files by its "
                        "shard"
                    )
                found[one.path], where[one.path] = one, attempt
        if not found:
            raise errors.SourceMissing(f"output {self.name} has no file in {self._directory}")
        self._where = where
        return sorted(found.values())

    def _of_attempt(
        self, attempt: str, selection: origins.Selection
    ) -> Sequence[origins.ListedFile]:
        source = origins.FileSource(self.name, self._directory / attempt, below=1)
        try:
            return source.list(selection)
        except errors.SourceMissing:
            return ()

    def open(self, path: str, *, offset: int, stamp: str) -> origins.Content:
        """Open a file that `list` has returned, safely even if a task replaces directories
        meanwhile.
        """
        *directories, name = (self._where[path], *path.split("/"))
        with origins.explained(self._directory / self._where[path] / path):
            at = os.open(self._directory, _DIRECTORY)
            try:
                for directory in directories:
                    inner = os.open(directory, _DIRECTORY, dir_fd=at)
                    os.close(at)
                    at = inner
                descriptor = os.open(name, _FILE, dir_fd=at)
            finally:
                os.close(at)
        return origins.FileContent(self.name, Path(path), descriptor, offset=offset, stamp=stamp)


def _task(attempt: str) -> str:
    return attempt.split(".", 1)[0]
