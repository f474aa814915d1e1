"""`kiln get`: list objects in the server's tables, or print whole objects as YAML or JSON."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from kilnwork.api import api_resources, meta
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    file_job_lists,
    file_job_lookup,
    file_jobs,
    job_lists,
    job_lookup,
    kinds,
    options,
    output_formats,
    selector_types,
    session,
    shell_completion,
    task_lists,
)
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors


@dataclass(frozen=True, slots=True)
class GetSelection:
    """Selection of objects to list, with the form of the output."""

    form: str | None
    selectors: dict[str, str]
    headers: bool
    spawned: bool
    limit: int | None = None
    """Maximum number of spawned tasks."""
    managed_fields: bool = False
    """Whether metadata.managedFields is shown."""


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="KIND[,KIND…] [NAME…] | KIND/NAME…",
    shell_complete=shell_completion.objects,
)
@options.list_target
@options.output("wide", "json", "yaml", "name")
@click.option(
    "-l",
    "--selector",
    type=selector_types.LABEL_SELECTOR,
    metavar="LABELS",
    help="Only objects with matching labels: app=web, tier!=test, env in (a,b), app, !app;"
    " separate with commas.",
)
@click.option(
    "--field-selector",
    type=selector_types.FIELD_SELECTOR,
    metavar="FIELDS",
    help="Only objects with matching fields, for example metadata.name=x or"
    " status.state!=Running; separate with commas.",
)
@click.option("-w", "--watch", is_flag=True, help="After listing, print changes until interrupted.")
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
@click.option(
    "--show-managed-fields",
    is_flag=True,
    help="Include metadata.managedFields, which client owns which field, in -o json and yaml.",
)
@click.option(
    "--spawned",
    is_flag=True,
    help="List tasks that are not Task objects: submitted by programs or other tasks.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"With --spawned: show the newest N tasks, 0 for all; default: {task_lists.LIMIT}, all"
    f" with -o json, yaml or name.",
)
@click.option(
    "--state",
    metavar="STATE",
    help="Only Jobs in this phase; with --indexes only indexes in this state.",
)
@click.option("--indexes", is_flag=True, help="List the indexes of the named Job.")
def command(
    words: tuple[str, ...],
    form: str | None,
    selector: str | None,
    field_selector: str | None,
    state: str | None,
    limit: int | None,
    **flags: bool,
) -> None:
    """List objects by kind, or show the named ones.

    \b
    kiln get tasks
    kiln get tasks hello -o yaml
    kiln get tasks --field-selector status.state=Failed
    kiln get all -A
    kiln get jobs --state Failed
    kiln get job report-x7k2p --indexes

    KIND is a plural, singular or short name: tasks, task, ktask; taskclusters, ktc; taskobjects,
    ktobj; pods, events, nodes and every other resource of the server. `all` stands for all kilnwork
    kinds, `files` for file jobs, as `kiln files` lists them.
    """
    if state is not None or flags["indexes"]:
        if selector or field_selector or flags["watch"] or flags["spawned"]:
            raise click.UsageError("--state and --indexes go with no selector and no --watch")
        name = _only_job(words, indexes=flags["indexes"])
        asked_jobs = {"state": state, "no_headers": flags["no_headers"]}
        session.run(lambda s: job_lists.print_jobs(s, name, form, asked_jobs))
        return
    if limit is not None and not flags["spawned"]:
        raise click.UsageError("--limit is of --spawned")
    asked = {"labelSelector": selector, "fieldSelector": field_selector}
    wanted = GetSelection(
        form=form,
        selectors={key: value for key, value in asked.items() if value},
        headers=not flags["no_headers"],
        spawned=flags["spawned"],
        limit=limit,
        managed_fields=flags["show_managed_fields"],
    )
    jobs = file_job_lookup.parse_file_jobs(words)
    if jobs is not None:
        session.run(lambda s: _file_jobs(s, jobs, wanted, watch=flags["watch"]))
    elif flags["watch"]:
        session.run(lambda s: _watch(s, words, wanted))
    else:
        session.run(lambda s: _get(s, words, wanted))


def _only_job(words: Sequence[str], *, indexes: bool) -> str | None:
    """Return the name of the only Job on the command line, or None for a list of Jobs.

    Raises `click.UsageError`.
    """
    job_name = job_lookup.explicit_name(words[0]) if len(words) == 1 else None
    if job_name is None and kinds.find_resources(words[0], api_kinds.ALL) != (api_kinds.JOBS,):
        raise click.UsageError("--state and --indexes are of Jobs: kiln get jobs --state Failed")
    names = [job_name] if job_name else list(words[1:])
    if len(names) != indexes:
        raise click.UsageError("--indexes takes one Job; --state without it, jobs and no name")
    return names[0] if names else None


async def _get(s: session.Session, words: Sequence[str], wanted: GetSelection) -> None:
    if wanted.spawned:
        only = {"declared": "false"}
        await task_lists.show(s, only, wanted.form, limit=wanted.limit, headers=wanted.headers)
        return
    refs = await s.kinds.refs(words)
    _check(refs, wanted)
    if wanted.form in (None, "wide"):
        await _tables(s, refs, wanted)
    else:
        await _objects(s, refs, wanted)


async def _file_jobs(
    s: session.Session, jobs: Sequence[str], wanted: GetSelection, *, watch: bool
) -> None:
    if watch or wanted.selectors:
        raise errors.InvalidInput(
            "file jobs have no labels and no watch here: `kiln files --phase` and `--name` choose, "
            "`kiln wait` follows one"
        )
    if not jobs:
        await file_job_lists.print_list(s, wanted.form, {"no_headers": not wanted.headers})
    elif len(jobs) == 1 and wanted.form not in (None, "wide"):
        await file_job_lists.print_job(s, jobs[0], wanted.form)
    else:
        found = [await file_jobs.get(s, job) for job in jobs]
        await file_job_lists.show(s, found, wanted.form, headers=wanted.headers)


def _check(refs: Sequence[kinds.ObjectRef], wanted: GetSelection) -> None:
    if wanted.selectors and any(ref.name for ref in refs):
        raise errors.InvalidInput(
            "a selector chooses among all objects of a kind: leave out the name"
        )


def _path(s: session.Session, ref: kinds.ObjectRef) -> str:
    if ref.name is None:
        return s.scope(ref.resource)
    if ref.resource.namespaced:
        s.one_namespace()
    return s.path(ref.resource, ref.name)


async def _objects(
    s: session.Session, refs: Sequence[kinds.ObjectRef], wanted: GetSelection
) -> None:
    found: list[tuple[api_resources.Resource, meta.JsonObject]] = []
    for ref in refs:
        if ref.name is not None:
            found.append((ref.resource, await s.ask("GET", _path(s, ref))))
            continue
        for item in await s.items(_path(s, ref), query=wanted.selectors):
            item.setdefault("apiVersion", ref.resource.api_version)
            item.setdefault("kind", ref.resource.kind)
            found.append((ref.resource, item))
    if not found and any(ref.resource.namespaced for ref in refs):
        await s.check_namespace()
    if wanted.form == "name":
        for served, item in found:
            click.echo(output_formats.full_name(served, item["metadata"]["name"]))
        return
    single = len(refs) == 1 and refs[0].name is not None
    items = [item for _, item in found]
    _whole(items[0] if single else output_formats.object_list(items), wanted)


def _whole(value: Any, wanted: GetSelection) -> None:
    text = output_formats.document(value, wanted.form, managed_fields=wanted.managed_fields)
    click.echo(text, nl=False)


async def _tables(
    s: session.Session, refs: Sequence[kinds.ObjectRef], wanted: GetSelection
) -> None:
    """Print a table for each kind; objects of the same kind that are named one by one share a
    table.
    """
    by_kind: dict[api_resources.Resource, list[kinds.ObjectRef]] = {}
    for ref in refs:
        by_kind.setdefault(ref.resource, []).append(ref)
    shown = 0
    missing: list[kube_errors.NotFound] = []
    for served, some in by_kind.items():
        pages = await _pages(s, some, wanted, missing)
        lines = _lines(pages, s, wanted, prefix=served if len(by_kind) > 1 else None)
        if lines and shown:
            click.echo()
        shown += len(lines)
        for line in lines:
            click.echo(line)
    for one in missing[:-1]:
        click.echo(f"error: {one}", err=True)
    if missing:
        raise missing[-1]
    if not shown:
        others = _OTHERS.get(",".join(served.plural for served in by_kind), "")
        await _say_nothing(s, refs, hint=others)


async def _say_nothing(s: session.Session, refs: Sequence[kinds.ObjectRef], *, hint: str) -> None:
    if any(ref.resource.namespaced for ref in refs):
        await s.say_nothing_found("nothing found", hint=hint)
    else:
        click.echo(f"nothing found{hint}", err=True)


_OTHERS = {
    "tasks": "; `kiln tasks` lists those of programs too",
    "jobs": f". {kinds.ELSEWHERE}",
}
"""Hints where to look instead, by kind."""


async def _pages(
    s: session.Session,
    refs: Sequence[kinds.ObjectRef],
    wanted: GetSelection,
    missing: list[kube_errors.NotFound],
) -> list[dict[str, Any]]:
    """Return the tables of the objects that exist.

    For each object that does not exist, an error is appended to `missing`.
    """
    pages = []
    for ref in refs:
        query = {} if ref.name else wanted.selectors
        try:
            async for page in s.pages(_path(s, ref), query=query, accept=session.TABLE):
                pages.append(page)  # noqa: PERF401  # a comprehension would lose the pages before an error
        except kube_errors.NotFound as error:
            missing.append(error)
    return pages


def _lines(
    pages: Sequence[dict[str, Any]],
    s: session.Session,
    wanted: GetSelection,
    *,
    prefix: api_resources.Resource | None,
) -> list[str]:
    rows = [row for page in pages for row in page.get("rows") or ()]
    if not rows:
        return []
    definitions = next(p["columnDefinitions"] for p in pages if p.get("columnDefinitions"))
    header, cells = table(definitions, rows, wide=wanted.form == "wide")
    if prefix is not None:
        for row in cells:
            row[0] = output_formats.full_name(prefix, str(row[0]))
    if s.target.all_namespaces and any(_namespace(row) for row in rows):
        header = ["NAMESPACE", *header]
        cells = [[_namespace(row), *some] for row, some in zip(rows, cells, strict=True)]
    lines = output_formats.columns(header, cells)
    return lines if wanted.headers else lines[1:]


def table(
    definitions: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], *, wide: bool
) -> tuple[list[str], list[list[Any]]]:
    """Return the header and the cells of a metav1.Table.

    `wide`: include the columns with a priority above 0.
    """
    kept = [i for i, d in enumerate(definitions) if wide or not d.get("priority")]
    header = [str(definitions[i]["name"]).upper() for i in kept]
    return header, [[row["cells"][i] for i in kept] for row in rows]


def _namespace(row: dict[str, Any]) -> str:
    found = (row.get("object") or {}).get("metadata") or {}
    return str(found.get("namespace", ""))


async def _watch(s: session.Session, words: Sequence[str], wanted: GetSelection) -> None:
    refs = await s.kinds.refs(words)
    _check(refs, wanted)
    if len(refs) != 1:
        raise errors.InvalidInput("--watch takes one kind, or one object")
    ref = refs[0]
    query = dict(wanted.selectors)
    if ref.name is not None:
        query["fieldSelector"] = f"metadata.name={ref.name}"
    path = s.scope(ref.resource) if ref.name is None else s.path(ref.resource)
    rows = _Rows(s, ref.resource, wanted)
    as_table = wanted.form in (None, "wide")
    accept = session.TABLE if as_table else http_types.JSON
    while True:
        version = ""
        async for page in s.pages(path, query=query, accept=accept):
            version = page["metadata"]["resourceVersion"]
            rows.show([page] if as_table else page["items"])
        if not await _follow(s, path, {**query, "resourceVersion": version}, rows):
            return


async def _follow(s: session.Session, path: str, query: dict[str, str], rows: "_Rows") -> bool:
    """Print changes of objects until the watch ends.

    Return True if the list must be read again before the next watch.
    """
    while True:
        try:
            watch = s.changes(path, query=query, accept=rows.accept)
            async with contextlib.aclosing(watch):
                async for change in watch:
                    found = change["object"]
                    query["resourceVersion"] = _version(found) or query["resourceVersion"]
                    if change["type"] != "BOOKMARK":
                        rows.show([found])
        except kube_errors.Expired:
            return True


def _version(found: dict[str, Any]) -> str:
    version = (found.get("metadata") or {}).get("resourceVersion")
    if not version and found.get("rows"):
        version = found["rows"][-1]["object"]["metadata"].get("resourceVersion")
    return version or ""


class _Rows:
    """Printer of watched objects: prints the header once and keeps the column widths of the first
    rows.
    """

    def __init__(
        self, s: session.Session, served: api_resources.Resource, wanted: GetSelection
    ) -> None:
        self._session = s
        self._served = served
        self._wanted = wanted
        self._definitions: list[dict[str, Any]] = []
        self._widths: list[int] = []
        self._headers = wanted.headers
        self.accept = session.TABLE if wanted.form in (None, "wide") else http_types.JSON

    def show(self, found: Sequence[dict[str, Any]]) -> None:
        """Print tables or objects in the requested form."""
        for one in found:
            if self._wanted.form in (None, "wide"):
                self._table(one)
            elif self._wanted.form == "name":
                click.echo(output_formats.full_name(self._served, one["metadata"]["name"]))
            else:
                one.setdefault("apiVersion", self._served.api_version)
                one.setdefault("kind", self._served.kind)
                click.echo("---" if self._wanted.form == "yaml" else "", nl=False)
                _whole(one, self._wanted)

    def _table(self, page: dict[str, Any]) -> None:
        self._definitions = page.get("columnDefinitions") or self._definitions
        rows = page.get("rows") or []
        if not rows:
            return
        header, cells = table(self._definitions, rows, wide=self._wanted.form == "wide")
        if self._session.target.all_namespaces:
            header = ["NAMESPACE", *header]
            cells = [[_namespace(row), *some] for row, some in zip(rows, cells, strict=True)]
        lines = [header] if self._headers else []
        self._headers = False
        lines += [[output_formats.cell(c) for c in row] for row in cells]
        self._widths = [
            max(width, *(len(line[i]) for line in lines))
            for i, width in enumerate(self._widths or [0] * len(header))
        ]
        for line in lines:
            padded = (text.ljust(w) for text, w in zip(line, self._widths, strict=True))
            click.echo("   ".join(padded).rstrip())
