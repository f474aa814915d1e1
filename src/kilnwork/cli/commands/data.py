"""`kiln data`: show what the nodes of DataPonds hold; create and release leases."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib import parse

import click

from kilnwork.api import file_job_uris, kinds
from kilnwork.cli import (
    errors,
    file_jobs,
    options,
    output_formats,
    pond_sentence,
    pond_tables,
    session,
    shell_completion,
)

_WAIT_S = 20
"""How long one request waits; it is repeated until the data is there."""


@click.command()
@click.argument(
    "pond",
    required=False,
    metavar="[POND]",
    shell_complete=shell_completion.of_kind(kinds.DATA_PONDS),
)
@options.target
@click.option("--snapshots", is_flag=True, help="Show which node holds which snapshot.")
@click.option(
    "--leases",
    is_flag=True,
    help="Show the leases with their snapshots and the progress of each node.",
)
@click.option(
    "--fetch",
    metavar="SOURCE",
    help="Copy a snapshot of a source, or of kiln:JOB/DIRECTORY, to all nodes.",
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="PATH",
    help="Fetch only this file; repeatable. Required for an HTTP source that is a directory.",
)
@click.option(
    "--glob",
    metavar="PATTERN",
    help="Fetch only files that match, for example **/*.csv; supports *, ?, […] and ** across"
    " directories.",
)
@click.option(
    "--lease",
    metavar="NAME",
    help="Name of the lease; default: the name of the source. An existing lease keeps its"
    " snapshot.",
)
@click.option("--release", metavar="NAME", help="Delete a lease that --fetch created.")
@options.output("json", "yaml")
def command(pond: str | None, form: str | None, **asked: Any) -> None:
    """Show which data each node of the DataPonds, or of POND, holds and has fetched.

    \b
    kiln data
    kiln data lake --snapshots
    kiln data lake --fetch market --glob '**/*.csv' --lease tomorrow
    kiln data lake --fetch kiln:2026-11-1234/parts --lease results
    kiln data lake --release tomorrow

    --fetch copies a snapshot to all nodes and creates a lease, which keeps it there until
    --release. The column HITS counts requested files that were already on the node, FETCHED what
    came from sources. A file job has the directories results, parts, errors and input.
    """
    acts = [name for name in ("snapshots", "leases", "fetch", "release") if asked[name]]
    if len(acts) > 1:
        raise click.UsageError(f"--{acts[0]} and --{acts[1]} are two things: choose one")
    if acts and pond is None:
        raise click.UsageError(f"--{acts[0]} is of one pond: name it")
    if (asked["paths"] or asked["glob"] or asked["lease"]) and not asked["fetch"]:
        raise click.UsageError("--path, --glob and --lease are of --fetch")
    if pond is not None and asked["fetch"]:
        session.run(lambda s: _fetch(s, pond, asked))
    elif pond is not None and asked["release"]:
        session.run(lambda s: _release(s, pond, asked["release"]))
    else:
        session.run(lambda s: _show(s, pond, form, acts))


async def _show(
    s: session.Session, pond: str | None, form: str | None, acts: Sequence[str]
) -> None:
    names = [pond] if pond is not None else await _ponds(s)
    below = "leases" if acts == ["leases"] else "nodes"
    responses = await asyncio.gather(*(s.get_json(f"{_path(s, name)}/{below}") for name in names))
    found = {name: response["items"] for name, response in zip(names, responses, strict=True)}
    if form is not None:
        click.echo(output_formats.document({"ponds": found}, form), nl=False)
        return
    if not found:
        await s.say_nothing_found("no DataPonds", hint=": `kiln apply` makes one")
        return
    for line in _table(found, pond, acts):
        click.echo(line)


def _table(
    found: Mapping[str, Sequence[Mapping[str, Any]]], pond: str | None, acts: Sequence[str]
) -> list[str]:
    if pond is not None and acts == ["snapshots"]:
        return pond_tables.snapshots(found[pond])
    if pond is not None and acts == ["leases"]:
        return pond_tables.leases(found[pond])
    return pond_tables.nodes(found)


async def _ponds(s: session.Session) -> list[str]:
    listed = await s.get_json(kinds.DATA_PONDS.base(s.namespace))
    return [item["metadata"]["name"] for item in listed["items"]]


async def _fetch(s: session.Session, pond: str, asked: Mapping[str, Any]) -> None:
    name, source = _source(asked["fetch"])
    source |= {"paths": list(asked["paths"]), "glob": asked["glob"] or ""}
    lease = asked["lease"] or name
    body = {"snapshots": [{"name": name, "from": source}]}
    last_text = ""
    while True:
        query = {"wait": str(_WAIT_S)}
        view = await s.ask("PUT", _lease(s, pond, lease), query=query, body=body)
        snapshot = view["snapshots"][name]
        if snapshot["state"] == "Failed":
            raise errors.CommandError(f"{snapshot['reason']}: {snapshot['message']}")
        if view["ready"]:
            size = file_jobs.size_text(snapshot["bytes"])
            nodes = file_jobs.counted(len(view["nodes"]), "node")
            click.echo(f"{snapshot['digest']} ({size}) is on {nodes}, held by lease {lease}")
            return
        now = snapshot["message"] or next(
            (one["message"] for one in view["nodes"].values() if not one["ready"]), ""
        )
        if now != last_text:
            last_text = now
            click.echo(now, err=True)


def _source(given: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the source of the snapshot that an argument of --fetch names."""
    if not given.startswith(file_job_uris.PREFIX):
        return given, {"source": given}
    try:
        found = file_job_uris.parse_uri(given)
    except ValueError as error:
        raise click.UsageError(f"--fetch: {error}") from error
    return found.directory, {"files": found.job, "path": found.directory}


async def _release(s: session.Session, pond: str, lease: str) -> None:
    await s.exchange("DELETE", _lease(s, pond, lease))
    click.echo(f"lease {lease} released")


def _path(s: session.Session, pond: str) -> str:
    return pond_sentence.path(s.namespace, pond)


def _lease(s: session.Session, pond: str, lease: str) -> str:
    return f"{_path(s, pond)}/leases/{parse.quote(lease, safe='')}"
