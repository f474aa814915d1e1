"""File jobs as `/jobs` serves them: reading, changing and following their documents.

Used by the commands about file jobs and, through `file_job_lookup`, by commands that take both
tasks and file jobs. docs/reference/jobs-api.md describes the fields of the documents.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.cli import errors, kinds, output_formats, session
from kilnwork.kit import clock, http_types
from kilnwork.kube import errors as kube_errors

Job = dict[str, Any]
"""One document of `/jobs`."""

_ID = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{1,20}")
_LINK = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')

_SHOWN = 5
"""Maximum number of jobs with the same name that an error lists."""

TOO_MANY = "TooManyBadRecords"
"""Reason of a job that failed because of bad records although all its parts are finished."""

_PAUSE_S = 0.5
PATIENCE_S = 60.0
"""How long the server may be away while a command follows a job: it may be restarted."""


def is_id(word: str) -> bool:
    """Return whether a word is the id of a file job, `YYYY-MM-NUMBER`, or its short form.

    No task has such a name.
    """
    return _ID.fullmatch(word) is not None or filejobs.short_digits(word) is not None


async def resolve_id(s: session.Session, word: str) -> str:
    """Return the id of the file job that an argument names, with or without `file/`.

    A name that no file job has is returned unchanged. Raises `errors.InvalidInput` if several jobs
    have the name.
    """
    name = strip_prefix(word)
    path(name)
    if is_id(name):
        return name
    same = list_documents(s, where=path(), wanted={"name": name}, limit=_SHOWN + 1)
    found = [str(each["id"]) async for each in same]
    if len(found) > 1:
        more = ", …" if len(found) > _SHOWN else ""
        raise errors.InvalidInput(
            f"{len(found) if not more else 'many'} file jobs are called {name!r}: name one by its "
            f"id, the newest first: {', '.join(map(filejobs.short_id, found[:_SHOWN]))}{more}"
        )
    return found[0] if found else name


def strip_prefix(word: str) -> str:
    """Return the id or name in `file/NAME`, and any other word unchanged."""
    kind, slash, name = word.partition("/")
    return name if slash and kind.lower() in kinds.FILE_JOBS else word


def path(job: str | None = None, sub: str = "") -> str:
    """Return the URL path of all file jobs, of one file job, or of a subresource of one.

    Raises `errors.InvalidInput`.
    """
    if job is None:
        return "/jobs"
    if not strip_prefix(job):
        raise errors.InvalidInput("the ID of the file job is empty: `kiln files` lists them")
    return "/".join(["/jobs", *(session.quoted(part) for part in (strip_prefix(job), sub) if part)])


def namespace_query(s: session.Session) -> dict[str, str]:
    """Return the query parameters that select the session's namespace.

    Raises `errors.InvalidInput` under `-A`.
    """
    if s.target.all_namespaces:
        raise errors.InvalidInput("file jobs are of one namespace: say -n NAMESPACE instead of -A")
    return {"namespace": s.namespace}


def list_query(s: session.Session) -> dict[str, str]:
    """Return the query parameters that select the namespaces of a list; `-A` selects all."""
    return {"allNamespaces": "true"} if s.target.all_namespaces else namespace_query(s)


async def get(s: session.Session, job: str) -> Job:
    """Return the document of a file job, by its id or name.

    Raises what `resolve_id` raises, and `kube.errors.NotFound`.
    """
    return await s.ask("GET", path(await resolve_id(s, job)), query=namespace_query(s))


async def post_action(s: session.Session, job: str, what: str) -> Job:
    """Request the action `cancel`, `suspend`, `resume` or `retry` on a file job.

    Return its new document.
    """
    return await s.ask("POST", path(await resolve_id(s, job), what), query=namespace_query(s))


async def list_documents(
    s: session.Session,
    *,
    where: str,
    wanted: Mapping[str, str],
    limit: int | None = None,
    space: Mapping[str, str] | None = None,
) -> AsyncIterator[Job]:
    """Yield the documents of a list, page by page, at most `limit` documents.

    `where`: the URL path of the list. `space`: the query parameters that select namespaces, by
    default those of `namespace_query`.
    """
    query: dict[str, str] | None = {**(namespace_query(s) if space is None else space), **wanted}
    left = limit
    while query is not None and (left is None or left > 0):
        query["limit"] = str(session.PAGE if left is None else min(left, session.PAGE))
        page = await s.exchange("GET", where, query=query)
        found = session.decode_json(page)
        for item in found:
            yield item
        left = None if left is None else left - len(found)
        query = _next_page_query(query, page.headers.get("Link", ""))


def _next_page_query(query: Mapping[str, str], link: str) -> dict[str, str] | None:
    """Return the query of the next page from a Link header (RFC 8288), or None at the last page."""
    found = _LINK.search(link)
    if found is None:
        return None
    return {**query, **session.query_of(found.group(1))}


def phase(job: Job) -> filejobs.FileJobPhase:
    return filejobs.FileJobPhase(job["phase"])


def records(job: Job) -> filejobs.Records:
    return msgspec.convert(job.get("records") or {}, filejobs.Records)


def all_bad(counts: filejobs.Records) -> bool:
    """Return whether a file job has no result at all because every processed record is bad."""
    return counts.failed > 0 and not counts.succeeded


def lines(job: Job) -> int:
    """Return the number of records of a file job.

    The counts do not yet include records of unfinished parts.
    """
    known = (job.get("input") or {}).get("lines")
    return records(job).total if known is None else int(known)


def parts(job: Job) -> Mapping[str, int]:
    """Return the number of parts of a file job by state, and their `total`."""
    return (job.get("progress") or {}).get("parts") or {"total": job.get("parts") or 0}


async def follow(s: session.Session, job: str) -> AsyncGenerator[Job, None]:
    """Yield the document of a file job now and after every change, until the job finishes.

    Reads server-sent events. Close it early only with `contextlib.aclosing`. Waits for a server
    that does not respond. Raises `errors.Missing` when the job was deleted.
    """
    away_s = 0.0
    while True:
        try:
            async with contextlib.aclosing(_events(s, job)) as found:
                async for document in found:
                    away_s = 0.0
                    yield document
                    if phase(document).final:
                        return
        except kube_errors.Unavailable:
            away_s += _PAUSE_S
            if away_s > PATIENCE_S:
                raise
        await asyncio.sleep(_PAUSE_S)


async def retry_while_away(
    s: session.Session,
    say: Callable[[str], None],
    ask: Callable[[], Awaitable[http_types.ClientResponse]],
) -> Job:
    """Send a request until the server responds, and return the document of the response.

    The request must be safe to repeat. `say` is called with a text about the wait.
    """
    until = s.clock.monotonic() + PATIENCE_S
    while True:
        try:
            reply = await ask()
        except kube_errors.Unavailable as error:
            if error.status or s.clock.monotonic() > until:
                raise
            say(f"trying for {PATIENCE_S:.0f} s: {error}")
            await asyncio.sleep(_PAUSE_S)
        except kube_errors.Conflict as error:
            if error.retry_after_s is None or s.clock.monotonic() > until:
                raise
            await asyncio.sleep(error.retry_after_s)  # an earlier request is still being processed
        else:
            found: Job = session.decode_json(reply)
            return found


async def _events(s: session.Session, job: str) -> AsyncGenerator[Job, None]:
    """Yield the documents in the `job` events of a file job (html.spec.whatwg.org, 9.2.6)."""
    stream = s.stream(path(job, "watch"), query=namespace_query(s), accept="text/event-stream")
    event, data, rest = "", [], b""
    async with contextlib.aclosing(stream) as pieces:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                name, _, value = line.rstrip(b"\r").decode().partition(":")
                value = value.removeprefix(" ")
                if name == "event":
                    event = value
                elif name == "data":
                    data.append(value)
                elif not line.strip():
                    if event == "deleted":
                        raise errors.Missing(f"job {job} was deleted")
                    if data and event in ("job", "message", ""):
                        yield msgspec.json.decode("\n".join(data), type=Job)
                    event, data = "", []


def check_end(job: Job) -> None:
    """Raise `errors.TaskFailed` for a finished file job that did not succeed."""
    if phase(job) is not filejobs.FileJobPhase.SUCCEEDED:
        known = f"`kiln logs {job['id']}` shows what the failed part has printed"
        if job.get("reason") == TOO_MANY:
            known = (
                f"`kiln results {job['id']} --errors` lists them, "
                f"`kiln adjust {job['id']} --max-failed N` lets more pass"
            )
        remedy = f"`kiln retry {job['id']} --failed` runs again what failed"
        raise errors.TaskFailed(f"{sentence(job)}. {known}, {remedy}")


def sentence(job: Job) -> str:
    counts, known = records(job), parts(job)
    text = f"job {job['id']} is {phase(job)}"
    if job.get("message"):
        text += f": {job['message']}"
    elif job.get("reason") and job["reason"] != phase(job):
        text += f" ({job['reason']})"
    text += f"; {counts.total:,} of {counted(lines(job), 'record')}"
    if known.get("total"):
        text += f" and {known.get('succeeded', 0):,} of {counted(known['total'], 'part')} are done"
    if counts.failed:
        text += f", {counts.failed:,} bad"
    return text


_COLUMNS = ("ID", "NAME", "PHASE", "PARTS", "RECORDS", "BAD", "AGE")
_WIDE = ("WHOLE ID", "MAPPER", "SIZE", "CREATED", "FINISHED", "MESSAGE")


def table(
    jobs: Sequence[Job], *, now: float, wide: bool = False, namespaces: bool = False
) -> list[str]:
    """Return the lines of a table with one file job per line.

    `namespaces`: whether the first column is the namespace.
    """
    columns = (*_COLUMNS, *_WIDE) if wide else _COLUMNS
    rows = [_row(job, now=now) + (_more(job) if wide else ()) for job in jobs]
    if namespaces:
        columns = ("NAMESPACE", *columns)
        rows = [(job.get("namespace"), *row) for job, row in zip(jobs, rows, strict=True)]
    return output_formats.columns(columns, rows)


def _row(job: Job, *, now: float) -> tuple[object, ...]:
    counts, known = records(job), parts(job)
    age = None
    if job.get("creationTime"):
        age = output_formats.short_time(now - clock.parse_rfc3339(job["creationTime"]))
    return (
        filejobs.short_id(job["id"]),
        job.get("name") or None,
        phase(job),
        f"{known.get('succeeded', 0)}/{known.get('total', 0)}",
        f"{counts.total}/{lines(job)}",
        counts.failed,
        age,
    )


def _more(job: Job) -> tuple[object, ...]:
    size = (job.get("input") or {}).get("bytes")
    return (
        job["id"],
        mapper((job.get("spec") or {}).get("mapper") or {}),
        None if size is None else size_text(size),
        job.get("creationTime"),
        job.get("completionTime"),
        job.get("message") or None,
    )


def mapper(document: Mapping[str, Any]) -> str:
    """Return the mapper or program of a file job in the form in which the user wrote it.

    Documents omit the default mapper.
    """
    if document.get("command"):
        return " ".join(document["command"])
    return document.get("function") or document.get("builtin") or "calculator"


_PART_COLUMNS = ("PART", "STATE", "RUN", "ATTEMPT", "LINES", "OK", "BAD", "WORKER", "MESSAGE")


def part_table(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return output_formats.columns(_PART_COLUMNS, [_part_row(part) for part in found])


def _part_row(part: Mapping[str, Any]) -> tuple[object, ...]:
    counts = part.get("records") or {}
    first, lines = part.get("firstLine"), part.get("lines")
    span = f"{first}-{first + lines - 1}" if first and lines else None
    return (
        part.get("part"),
        part.get("state"),
        part.get("run"),
        part.get("attempt") or None,
        span,
        counts.get("succeeded", 0),
        counts.get("failed", 0),
        part.get("worker") or part.get("holder") or None,
        part.get("message") or None,
    )


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 part`, `12,500 parts`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def size_text(count: float) -> str:
    """Return a number of bytes as text for people: `512 B`, `1.2 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def parse_tolerance(text: str | None) -> tuple[int | None, float | None]:
    """Return the number or the percentage of bad records above which a file job fails.

    One of the two values is None; both are None for no limit. Raises `errors.InvalidInput`.
    """
    if text is None:
        return None, None
    try:
        if text.endswith("%"):
            share = float(text[:-1])
            if 0 <= share <= 100:
                return None, share
        elif int(text) >= 0:
            return int(text), None
    except ValueError:
        pass
    raise errors.InvalidInput(f"--max-failed {text}: write a number such as 100, or 0.5%")
