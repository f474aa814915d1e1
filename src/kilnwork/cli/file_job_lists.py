"""Printing of file jobs: of lists, of single jobs, and of the parts of a job.

Used by `files` and by `get files`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kilnwork.api import filejobs
from kilnwork.cli import file_job_progress, file_jobs, output_formats, session
from kilnwork.kit import clock

_LIMIT = 50
"""Default number of listed jobs."""


async def print_list(s: session.Session, form: str | None, asked: Mapping[str, Any]) -> None:
    """Print a list of file jobs.

    `asked`: the options phase, name, limit and no_headers of `kiln files`.
    """
    limit = asked.get("limit") or _LIMIT
    wanted = {key: str(asked[key]) for key in ("phase", "name") if asked.get(key)}
    found = [
        item
        async for item in file_jobs.list_documents(
            s,
            where=file_jobs.path(),
            wanted=wanted,
            limit=limit + 1,
            space=file_jobs.list_query(s),
        )
    ]
    await show(s, found[:limit], form, headers=not asked["no_headers"])
    if len(found) > limit:
        click.echo(f"these are the newest {limit}: --limit shows more", err=True)


async def show(
    s: session.Session, items: Sequence[file_jobs.Job], form: str | None, *, headers: bool
) -> None:
    if form in ("json", "yaml"):
        click.echo(output_formats.document({"items": items}, form), nl=False)
    elif form == "name":
        for item in items:
            click.echo(item["id"])
    elif not items:
        await s.say_nothing_found("no file jobs", hint=": `kiln upload` makes one")
    else:
        everywhere = s.target.all_namespaces
        lines = file_jobs.table(
            items, now=s.clock.wall(), wide=form == "wide", namespaces=everywhere
        )
        for line in lines if headers else lines[1:]:
            click.echo(line)


async def print_job(s: session.Session, job: str, form: str | None) -> None:
    """Print one file job: its settings, its progress, and the commands that apply to it now."""
    found = await file_jobs.get(s, job)
    if form in ("json", "yaml"):
        click.echo(output_formats.document(found, form), nl=False)
    elif form == "name":
        click.echo(found["id"])
    else:
        bad = (
            await file_job_progress.read_first_bad_record(s, found["id"])
            if file_jobs.records(found).failed
            else None
        )
        for line in _describe(found, bad):
            click.echo(line)


def _describe(job: file_jobs.Job, bad: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the lines that describe a file job. `bad`: its first bad record."""
    counts, known, spec = file_jobs.records(job), file_jobs.parts(job), job.get("spec") or {}
    yield f"{file_jobs.sentence(job)}."
    yield ""
    size = (job.get("input") or {}).get("bytes")
    rows = {
        "short id": filejobs.short_id(job["id"]),
        "name": job.get("name"),
        "mapper": file_jobs.mapper(spec.get("mapper") or {}),
        "reducer": file_jobs.mapper(spec["reducer"]) if spec.get("reducer") else None,
        "input": None if size is None else file_jobs.size_text(size),
        "records": ", ".join(
            f"{number:,} {word}"
            for word, number in (
                ("in all", file_jobs.lines(job)),
                ("ok", counts.succeeded),
                ("bad", counts.failed),
                ("skipped", counts.skipped),
            )
            if number or word == "in all"
        ),
        "first bad": None if bad is None else f"line {bad['line']}: {bad['reason']}",
        "parts": ", ".join(f"{number:,} {word}" for word, number in known.items() if number),
        "at once": job.get("parallelism"),
        "created": job.get("creationTime"),
        "finished": job.get("completionTime"),
    }
    for name, value in rows.items():
        if value not in (None, ""):
            yield f"  {name:10}{value}"
    yield ""
    yield from (f"  {line}" for line in _next(job, counts))


def _next(job: file_jobs.Job, counts: filejobs.Records) -> Iterator[str]:
    of, phase = job["id"], file_jobs.phase(job)
    if phase is filejobs.FileJobPhase.SUCCEEDED:
        yield f"kiln results {of} -o FILE    prints the result"
    elif phase.final:
        if job.get("reason") == file_jobs.TOO_MANY:
            yield f"kiln adjust {of} --max-failed N    accepts more bad records"
        yield f"kiln retry {of} --failed    runs the failed parts again"
        yield f"kiln files {of} --parts    lists the parts"
    elif phase is filejobs.FileJobPhase.PAUSED:
        yield f"kiln resume {of}    resumes it"
    else:
        yield f"kiln wait {of}    waits until it finishes"
    if counts.failed:
        yield f"kiln results {of} --errors    lists the bad records"


async def print_uploads(s: session.Session, form: str | None, *, headers: bool) -> None:
    """Print the uploads that belong to no file job, newest first.

    Such uploads can be continued or deleted.
    """
    reply = await s.exchange("GET", "/files", query=file_jobs.namespace_query(s))
    found = sorted(
        session.decode_json(reply), key=lambda each: str(each["creationTime"]), reverse=True
    )
    if form in ("json", "yaml"):
        click.echo(output_formats.document({"items": found}, form), nl=False)
    elif form == "name":
        for each in found:
            click.echo(f"upload/{each['id']}")
    elif not found:
        await s.say_nothing_found("no uploads that belong to no job")
    else:
        lines = output_formats.columns(
            _UPLOADS, [_upload(each, now=s.clock.wall()) for each in found]
        )
        for line in lines if headers else lines[1:]:
            click.echo(line)
        click.echo(
            "`kiln upload FILE … --resume UPLOAD` continues an upload,"
            " `kiln delete upload/UPLOAD` deletes it",
            err=True,
        )


_UPLOADS = ("UPLOAD", "HAS", "OF", "COMPLETE", "AGE")


def _upload(each: Mapping[str, Any], *, now: float) -> tuple[object, ...]:
    length = each.get("length")
    return (
        each["id"],
        file_jobs.size_text(each["offset"]),
        None if length is None else file_jobs.size_text(length),
        each["complete"],
        output_formats.short_time(now - clock.parse_rfc3339(each["creationTime"])),
    )


async def print_parts(
    s: session.Session, job: str, form: str | None, asked: Mapping[str, Any]
) -> None:
    """Print the parts of one file job.

    `asked`: the options state, limit and no_headers of `kiln files`.
    """
    wanted = {"state": asked["state"].capitalize()} if asked["state"] else {}
    where = file_jobs.path(await file_jobs.resolve_id(s, job), "parts")
    found = [
        item
        async for item in file_jobs.list_documents(
            s, where=where, wanted=wanted, limit=asked["limit"]
        )
    ]
    if form in ("json", "yaml"):
        click.echo(output_formats.document({"items": found}, form), nl=False)
    elif form == "name":
        for item in found:
            click.echo(item["part"])
    elif not found:
        state = f" that is {wanted['state']}" if wanted else ""
        click.echo(f"job {job} has no part{state}", err=True)
    else:
        for line in file_jobs.part_table(found)[asked["no_headers"] :]:
            click.echo(line)
