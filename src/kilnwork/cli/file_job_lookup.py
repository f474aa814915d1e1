"""Lookup of the file job that a command-line argument names: ID, NAME, file/ID or file/NAME.

Used by commands that also take tasks and other objects. An argument without `file/` names a task if
there is one. `NAME-3` is part 3 of a job, which is a task. A name that several jobs have is an
error.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

import click

from kilnwork.cli import errors, file_jobs, kinds, session, task_id_lookup
from kilnwork.kube import errors as kube_errors

T = TypeVar("T")

_PART = re.compile(r"(.+)-([1-9][0-9]{0,6})")


class FoundFileJob(NamedTuple):
    """The file job that a command-line argument names, or one of its parts.

    `part`: the number of the part, or None if the argument names the job itself.
    """

    job: file_jobs.Job
    part: int | None = None

    @property
    def task(self) -> str:
        """Return the name of the part as a task, for commands that take tasks."""
        return f"{self.job['id']}-{self.part}"


def explicit_name(word: str) -> str | None:
    """Return the id or name of the file job, or None if the argument may name something else."""
    bare = file_jobs.strip_prefix(word)
    return bare if bare != word or file_jobs.is_id(word) else None


def parse_file_jobs(words: Sequence[str]) -> list[str] | None:
    """Return the file jobs that a command line names: `files`, `file NAME…`, `file/NAME…` or `ID…`.

    An empty list stands for all file jobs, None for a command line that names other objects. Raises
    `errors.InvalidInput` if it names both.
    """
    if words[0].lower() in kinds.FILE_JOBS:
        return [file_jobs.strip_prefix(word) for word in words[1:]]
    names = [explicit_name(word) for word in words]
    if all(name is not None for name in names):
        return [name for name in names if name is not None]
    categories = [kind.lower() for kind in words[0].split(",")]
    if any(kind in kinds.FILE_JOBS for kind in categories) or any(
        name != word for name, word in zip(names, words, strict=True) if name is not None
    ):
        raise errors.InvalidInput(
            "file jobs are no Kubernetes objects: name them in a command of their own, "
            "or list them with `kiln files`"
        )
    return None


async def find(s: session.Session, name: str) -> FoundFileJob:
    """Return the file job with this id or name, or a part of a file job.

    Raises `kube.errors.NotFound`.
    """
    try:
        return FoundFileJob(await file_jobs.get(s, name))
    except kube_errors.NotFound as error:
        if (match := _PART.fullmatch(name)) is not None:
            job = await _find_job(s, match[1])
            if job is not None and int(match[2]) <= file_jobs.parts(job).get("total", 0):
                return FoundFileJob(job, int(match[2]))
        raise error from None


async def find_readable(s: session.Session, name: str) -> FoundFileJob | None:
    """Return the file job or part like `find`, or None if there is none that the user may read.

    Raises `errors.InvalidInput`.
    """
    try:
        return await find(s, name)
    except errors.InvalidInput:
        raise
    except errors.SERVER_ERRORS:
        return None


async def _find_job(s: session.Session, name: str) -> file_jobs.Job | None:
    try:
        return await file_jobs.get(s, name)
    except kube_errors.NotFound:
        return None


async def call_for_task_or_file_job(
    s: session.Session,
    word: str,
    *,
    task: Callable[[str], Awaitable[T]],
    job: Callable[[file_jobs.Job], Awaitable[T]],
) -> T:
    """Call `task` or `job` with the task or file job that a word names, and return the result.

    Calls `job` if the word can only name a file job, or if no task but a file job has the name.
    Raises what they raise.
    """
    name = explicit_name(word)
    if name is not None:
        found = await find(s, name)
    else:
        try:
            return await task(await task_id_lookup.resolve(s, word))
        except kube_errors.NotFound as error:
            other = await find_readable(s, word)
            if other is None:
                raise error from None
            found = other
    return await (job(found.job) if found.part is None else task(found.task))


async def for_each(words: Sequence[str], do: Callable[[str], Awaitable[None]]) -> None:
    """Call `do` for each word; print the errors of the calls and raise the last error."""
    refused: list[errors.CommandError | kube_errors.KubeError] = []
    for word in words:
        try:
            await do(word)
        except kube_errors.Unavailable:
            raise
        except errors.SERVER_ERRORS as error:
            refused.append(error)
    for one in refused[:-1]:
        click.echo(f"error: {one}", err=True)
    if refused:
        raise refused[-1]
