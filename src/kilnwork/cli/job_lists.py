"""Printing of Jobs: of lists, of single Jobs, and of the indexes of a Job.

Used by `kiln jobs`, `kiln get jobs`, `job_logs` and `job_progress`. Functions without I/O make the
tables from objects and documents.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import click

from kilnwork.api import job as api_job
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import errors, job_fields, job_lookup, output_formats, session
from kilnwork.jobs import index_job_types

LIMIT = 50
"""Default number of listed Jobs."""

WIDTH = 100
"""Width of a list in columns, unless long names need more."""

_LEAST_CONFIG = 8
"""Minimum width to which the name of the JobConfig is cut."""

_P = api_job.Phase
_INDEX_STATES = {state.lower(): state.value for state in index_job_types.IndexState}
_COLUMNS = ("NAME", "CONFIG", "PHASE", "INDEXES", "AGE", "TOOK")
_INDEX_COLUMNS = ("INDEX", "LABEL", "STATE", "RUN", "ATTEMPT", "WORKER", "TOOK", "MESSAGE")


class JobSelection:
    """Selection of the Jobs to list, from the options of `kiln jobs`.

    `asked`: the options by name.
    """

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._phase = job_fields.phase_of(asked["state"]) if asked.get("state") else None
        self._config = asked.get("config")
        self._groups = [name for name in ("active", "queued", "finished") if asked.get(name)]
        self._types = [name for name in ("scheduled", "adhoc") if asked.get(name)]

    def has(self, found: Mapping[str, Any]) -> bool:
        """Return whether the selection includes a Job.

        Options of one group are combined with "or", groups with "and".
        """
        if self._phase is not None and job_fields.phase(found) != self._phase:
            return False
        if self._config and job_fields.config(found) != self._config:
            return False
        type_ = str(job_fields.spec(found).get("type") or "Adhoc").lower()
        return (not self._groups or group(found) in self._groups) and (
            not self._types or type_ in self._types
        )


def group(found: Mapping[str, Any]) -> str:
    """Return the group of a Job: `queued` before its start, `active`, or `finished` after its
    end.
    """
    phase = job_fields.phase(found)
    if not phase or phase == _P.QUEUED:
        return "queued"
    return "finished" if job_fields.is_over(found) else "active"


async def print_jobs(
    s: session.Session, name: str | None, form: str | None, asked: Mapping[str, Any]
) -> None:
    """Print the indexes of a Job or, without a name, a list of Jobs.

    Raises `errors.InvalidInput` for an unknown state.
    """
    text = asked.get("state")
    if name is not None:
        state = None if text is None else _INDEX_STATES.get(text.lower())
        if text is not None and state is None:
            known = ", ".join(_INDEX_STATES.values())
            raise errors.InvalidInput(f"--state {text}: states of indexes are {known}")
        await print_indexes(s, name, form, {**asked, "state": state})
        return
    if text is not None and job_fields.phase_of(text) is None:
        raise errors.InvalidInput(f"--state {text}: phases of Jobs are {', '.join(_P)}")
    await print_list(s, form, asked)


async def print_list(s: session.Session, form: str | None, asked: Mapping[str, Any]) -> None:
    """Print a list of Jobs, newest first.

    `asked`: the options of `JobSelection`, limit and no_headers.
    """
    choice, limit = JobSelection(asked), asked.get("limit") or LIMIT
    objects = [item for item in await s.items(s.scope(api_kinds.JOBS)) if choice.has(item)]
    objects.sort(key=_made, reverse=True)
    items = objects[:limit]
    if not items:
        await s.check_namespace()
    if form in ("json", "yaml"):
        click.echo(
            output_formats.document(output_formats.object_list([_whole(i) for i in items]), form),
            nl=False,
        )
    elif form == "name":
        for item in items:
            click.echo(output_formats.full_name(api_kinds.JOBS, item["metadata"]["name"]))
    elif not items:
        which = " of this sort" if _is_choosy(asked) else ""
        await s.say_nothing_found(f"no Jobs{which}", hint=": `kiln run-job CONFIG` makes one")
    else:
        lines = table(
            items, now=s.clock.wall(), wide=form == "wide", namespaces=s.target.all_namespaces
        )
        for line in lines[1:] if asked.get("no_headers") else lines:
            click.echo(line)
    if len(objects) > limit:
        click.echo(
            f"these are the newest {limit} of {len(objects):,}: --limit shows more", err=True
        )


def _made(item: Mapping[str, Any]) -> tuple[str, int]:
    metadata = item["metadata"]
    return str(metadata.get("creationTimestamp", "")), int(metadata.get("resourceVersion") or 0)


def _is_choosy(asked: Mapping[str, Any]) -> bool:
    return any(value for name, value in asked.items() if name not in ("limit", "no_headers"))


def _whole(item: Mapping[str, Any]) -> dict[str, Any]:
    served = api_kinds.JOBS
    return {"apiVersion": served.api_version, "kind": served.kind, **item}


def table(
    items: Sequence[Mapping[str, Any]],
    *,
    now: float,
    wide: bool = False,
    namespaces: bool = False,
) -> list[str]:
    """Return the lines of a table with one Job per line.

    `namespaces`: whether the first column is the namespace.
    """
    columns = [*_COLUMNS, *(("TYPE", "RUN", "REASON", "MESSAGE") if wide else ())]
    rows = [[*_row(item, now=now), *(_more(item) if wide else ())] for item in items]
    if namespaces:
        columns = ["NAMESPACE", *columns]
        rows = [[i["metadata"].get("namespace"), *row] for i, row in zip(items, rows, strict=True)]
    lines = output_formats.columns(columns, rows)
    surplus = max(map(len, lines)) - WIDTH
    if wide or surplus <= 0:
        return lines
    at = columns.index("CONFIG")
    longest = max(len(output_formats.cell(row[at])) for row in rows)
    for row in rows:
        row[at] = shortened(output_formats.cell(row[at]), max(_LEAST_CONFIG, longest - surplus))
    return output_formats.columns(columns, rows)


def shortened(text: str, width: int) -> str:
    """Return a text cut to at most `width` characters, with … at the cut."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _row(item: Mapping[str, Any], *, now: float) -> list[object]:
    took = job_fields.took_s(item, now=now)
    return [
        item["metadata"]["name"],
        job_fields.config(item) or None,
        job_fields.phase(item) or None,
        job_fields.indexes(item),
        output_formats.short_time(job_fields.age_s(item, now=now)),
        None if took is None else output_formats.short_time(took),
    ]


def _more(item: Mapping[str, Any]) -> tuple[object, ...]:
    spec, status = job_fields.spec(item), job_fields.status(item)
    return (
        spec.get("type") or "Adhoc",
        status.get("run") or None,
        status.get("reason") or None,
        status.get("message") or None,
    )


async def print_job(s: session.Session, name: str, form: str | None) -> None:
    """Print one Job: its state and the reason, its progress, and the commands that apply to it
    now.
    """
    found = await job_lookup.get(s, name)
    if form in ("json", "yaml"):
        click.echo(output_formats.document(found, form), nl=False)
    elif form == "name":
        click.echo(output_formats.full_name(api_kinds.JOBS, name))
    else:
        for line in describe(found, now=s.clock.wall()):
            click.echo(line)


def describe(found: Mapping[str, Any], *, now: float) -> Iterator[str]:
    """Yield the lines that describe one Job."""
    status, spec, counts = (
        job_fields.status(found),
        job_fields.spec(found),
        job_fields.counts(found),
    )
    took = job_fields.took_s(found, now=now)
    yield f"{job_fields.sentence(found)}."
    yield ""
    rows = {
        "config": job_fields.config(found),
        "type": spec.get("type") or "Adhoc",
        "run": status.get("run"),
        "priority": spec.get("priority"),
        "indexes": ", ".join(
            f"{number:,} {word}"
            for word, number in (
                ("in all", counts.total),
                ("succeeded", counts.succeeded),
                (f"failed ({shortened(counts.failed_indexes, 40)})", counts.failed),
                ("running", counts.running),
            )
            if number
        ),
        "created": found["metadata"].get("creationTimestamp"),
        "started": status.get("startTime"),
        "finished": status.get("finishTime"),
        "took": None if took is None else output_formats.short_time(took),
        "kill at": spec.get("killTimestamp"),
        "suspended": "yes" if spec.get("suspend") else None,
    }
    for name, value in rows.items():
        if value not in (None, "", 0):
            yield f"  {name:10}{value}"
    yield ""
    yield from (f"  {line}" for line in _next(found))


def _next(found: Mapping[str, Any]) -> Iterator[str]:
    name, counts = found["metadata"]["name"], job_fields.counts(found)
    if job_fields.phase(found) == _P.SUCCEEDED:
        if job_fields.status(found).get("result"):
            yield f"kiln result job/{name}    prints its result"
    elif group(found) == "finished":
        if job_fields.phase(found) != _P.ADMISSION_ERROR:
            yield f"kiln retry job/{name}    runs the other indexes again"
    elif job_fields.spec(found).get("suspend"):
        yield f"kiln resume job/{name}    resumes it"
    else:
        yield f"kiln jobs {name} --watch    follows it"
        yield f"kiln cancel job/{name}    stops it"
    if counts.failed:
        yield f"kiln jobs {name} --indexes --state Failed    lists what failed"
    if job_fields.status(found).get("tasks"):
        yield f"kiln logs job/{name}    shows what it printed"


def indexes_path(s: session.Session, name: str) -> str:
    """Return the URL path of the indexes of a Job."""
    namespace = session.quoted(s.one_namespace())
    return f"/v1/namespaces/{namespace}/jobs/{session.quoted(name)}/indexes"


async def list_indexes(
    s: session.Session, name: str, *, state: str | None = None, limit: int | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield at most `limit` indexes of a Job, in the order of their numbers."""
    path = indexes_path(s, name)
    query, left = ({"state": state} if state else {}), limit
    while left is None or left > 0:
        query["limit"] = str(session.PAGE if left is None else min(left, session.PAGE))
        page = await s.ask("GET", path, query=query)
        for item in page["items"]:
            yield item
        left = None if left is None else left - len(page["items"])
        if "after" not in page:
            return
        query["after"] = str(page["after"])


async def print_indexes(
    s: session.Session, name: str, form: str | None, asked: Mapping[str, Any]
) -> None:
    """Print the indexes of one Job.

    `asked`: the options state, limit and no_headers of `kiln jobs`.
    """
    limit = asked.get("limit")
    more = None if limit is None else limit + 1
    listed = list_indexes(s, name, state=asked.get("state"), limit=more)
    found = [item async for item in listed]
    items = found[:limit]
    if form in ("json", "yaml"):
        click.echo(output_formats.document({"items": items}, form), nl=False)
    elif form == "name":
        for item in items:
            click.echo(item["name"])
    elif not items:
        which = f" that is {asked['state']}" if asked.get("state") else ""
        click.echo(f"Job {name} has no index{which}", err=True)
    else:
        lines = index_table(items, now=s.clock.wall(), wide=form == "wide")
        for line in lines[1:] if asked.get("no_headers") else lines:
            click.echo(line)
    if len(found) > len(items):
        click.echo(f"these are the first {limit}: --limit shows more", err=True)


def index_table(items: Sequence[Mapping[str, Any]], *, now: float, wide: bool = False) -> list[str]:
    """Return the lines of a table with one index of a Job per line.

    Unless `wide`, messages and then labels are cut so that lines have at most `WIDTH` characters,
    but not below 16 characters each.
    """
    rows = [_index_row(item, now=now) for item in items]
    lines = output_formats.columns(_INDEX_COLUMNS, rows)
    surplus = max(map(len, lines)) - WIDTH
    if wide or surplus <= 0:
        return lines
    for name in ("MESSAGE", "LABEL"):
        at = _INDEX_COLUMNS.index(name)
        longest = max(len(output_formats.cell(row[at])) for row in rows)
        for row in rows:
            row[at] = shortened(output_formats.cell(row[at]), max(16, longest - surplus))
        surplus = max(map(len, output_formats.columns(_INDEX_COLUMNS, rows))) - WIDTH
        if surplus <= 0:
            break
    return output_formats.columns(_INDEX_COLUMNS, rows)


def _index_row(item: Mapping[str, Any], *, now: float) -> list[object]:
    started = job_fields.seconds(item.get("startTime"))
    ended = job_fields.seconds(item.get("finishTime"))
    took = None
    if started is not None:
        took = output_formats.short_time((now if ended is None else ended) - started)
    return [
        item["number"],
        item["label"],
        item["state"],
        item["run"],
        item.get("attempt"),
        item.get("podName") or item.get("nodeName"),
        took,
        item.get("message") or (item["state"] != "Succeeded" and item.get("reason")) or None,
    ]
