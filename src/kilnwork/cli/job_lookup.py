"""Lookup of the Job or JobConfig that a command-line argument names.

Used by commands about Jobs, and by those that also take tasks and file jobs. NAME alone
stands for a task, otherwise a file job, otherwise a Job; `job/NAME` is always a Job.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from kilnwork.api import api_resources, job_config
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import errors, file_job_lookup, file_jobs, kinds, session
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors

T = TypeVar("T")

Item = dict[str, Any]
"""An object as the API server sends it."""


def explicit_name(word: str, served: api_resources.Resource = api_kinds.JOBS) -> str | None:
    """Return the name in `KIND/NAME` if KIND is the kind of `served`, otherwise None."""
    kind, slash, name = word.partition("/")
    return name if slash and kinds.find_resources(kind, api_kinds.ALL) == (served,) else None


def plain_name(word: str, served: api_resources.Resource = api_kinds.JOBS) -> str:
    """Return the name in `NAME` or `KIND/NAME`.

    Raises `errors.InvalidInput` if KIND is not the kind of `served`.
    """
    name = explicit_name(word, served)
    if name is None and "/" in word:
        raise errors.InvalidInput(f"{word!r}: write NAME or {served.singular}/NAME")
    found = word if name is None else name
    if not found:
        raise errors.InvalidInput(
            f"the name of the {served.kind} is empty: `kiln get {served.plural}`"
        )
    return found


async def get(
    s: session.Session, name: str, served: api_resources.Resource = api_kinds.JOBS
) -> Item:
    """Return the Job or JobConfig of the given name. Raises `errors.Missing`."""
    try:
        return await s.ask("GET", s.path(served, name, namespace=s.one_namespace()))
    except kube_errors.NotFound as error:
        of_jobs = served == api_kinds.JOBS
        lists = "kiln jobs" if of_jobs else f"kiln get {served.plural}"
        raise errors.Missing(
            f'there is no {served.kind} "{name}" in namespace {s.one_namespace()}: '
            f"`{lists}` lists the existing ones{f'. {kinds.ELSEWHERE}' if of_jobs else ''}"
        ) from error


async def find_readable_job(s: session.Session, name: str) -> Item | None:
    """Return the Job of the given name, or None if there is none that the user may read."""
    try:
        return await s.ask("GET", s.path(api_kinds.JOBS, name, namespace=s.one_namespace()))
    except errors.SERVER_ERRORS:
        return None


async def get_config(s: session.Session, name: str) -> job_config.JobConfig:
    """Return the JobConfig of the given name.

    Raises `errors.Missing`, or CommandError for an invalid JobConfig.
    """
    found = await get(s, name, api_kinds.JOB_CONFIGS)
    return decode_config(found)


def decode_config(found: Item) -> job_config.JobConfig:
    """Return a JobConfig from the API server as a struct.

    Raises CommandError for an invalid JobConfig.
    """
    try:
        return msgspec.convert(found, job_config.JobConfig)
    except msgspec.ValidationError as error:
        name = found["metadata"]["name"]
        raise errors.CommandError(
            f"JobConfig {name} cannot be used: {error}; `kiln why jobconfig/{name}`"
        ) from error


async def patch_spec(
    s: session.Session,
    name: str,
    spec: dict[str, Any],
    served: api_resources.Resource = api_kinds.JOBS,
) -> Item:
    """Merge fields into the spec of a Job or JobConfig and return the updated object."""
    path = s.path(served, name, namespace=s.one_namespace())
    return await s.ask("PATCH", path, body={"spec": spec}, content_type=http_types.MERGE_PATCH)


async def call_for_named(
    s: session.Session,
    word: str,
    *,
    task: Callable[[str], Awaitable[T]],
    file_job: Callable[[file_jobs.Job], Awaitable[T]],
    job: Callable[[Item], Awaitable[T]],
) -> T:
    """Call `task`, `file_job` or `job` with what an argument names, and return the result.

    Calls `job` for `job/NAME`, and for a NAME that neither a task nor a file job has. Raises what
    the functions raise, `errors.InvalidInput` if a file job and a Job have the name, and
    `errors.Missing` for `KIND/NAME` with an unknown kind.
    """
    name = explicit_name(word)
    if name is not None:
        return await job(await get(s, name))

    async def unambiguous(found: file_jobs.Job) -> T:
        if (
            file_job_lookup.explicit_name(word) is None
            and await find_readable_job(s, word) is not None
        ):
            raise errors.InvalidInput(
                f"{word} is a file job and a Job: write file/{word} or job/{word}"
            )
        return await file_job(found)

    try:
        return await file_job_lookup.call_for_task_or_file_job(s, word, task=task, job=unambiguous)
    except kube_errors.NotFound as error:
        if unknown := kinds.unknown_kind(word):
            raise errors.Missing(unknown) from error
        other = None if "/" in word else await find_readable_job(s, word)
        if other is None:
            raise
    return await job(other)
