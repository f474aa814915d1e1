"""`kiln prune`: delete finished tasks from the journal, to free disk space of the server."""

from typing import Any

import click
import msgspec

from kilnwork.cli import errors, jobs_api_limits, options, session


@click.command()
@options.list_target
@options.data
@click.option(
    "--older-than",
    type=options.DURATION,
    help="Delete only tasks that finished longer ago than this, for example 12h or 3d.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the newest N finished tasks.",
)
@click.option(
    "--free",
    type=jobs_api_limits.SIZE,
    metavar="SIZE",
    help="Stop when about this much space is freed.",
)
@click.option(
    "--keyed",
    is_flag=True,
    help="Also delete calls with a key; programs that submit them again recompute them.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted without deleting it.")
def command(
    older_than: float | None,
    keep: int | None,
    free: int | None,
    keyed: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
) -> None:
    """Delete finished tasks from the journal, oldest first, with their output, results and blobs.

    \b
    kiln prune --older-than 1d --dry-run
    kiln prune --keep 10000
    kiln prune --free 5Gi -A
    kiln prune --older-than 1d --data runs

    Prints how many tasks were deleted and how much space that frees. Not deleted are Task objects
    (use `kiln delete`), tasks whose parent or child is unfinished, tasks whose result an unfinished
    task takes, calls with a key (unless --keyed), and tasks that finished within the last minute.
    Blobs, which hold large values, are deleted once no program has used them for 10 minutes.

    A server does the same by itself: see --keep-for, --keep-tasks and --keep-size of `kiln up`.
    """
    if older_than is None and keep is None and free is None:
        raise errors.InvalidInput("name what to delete: --older-than, --keep or --free")
    query = {
        "olderThan": "" if older_than is None else str(int(older_than)),
        "keep": "" if keep is None else str(keep),
        "free": "" if free is None else str(free),
        "keyed": str(keyed).lower(),
        "dryRun": str(dry_run).lower(),
    }
    session.run(lambda s: _prune(s, query))


async def _prune(s: session.Session, query: dict[str, str]) -> None:
    path = "/v1/prune"
    if not s.target.all_namespaces:
        path = f"/v1/namespaces/{session.quoted(s.one_namespace())}/prune"
    given = {name: text for name, text in query.items() if text}
    response = await s.exchange("POST", path, query=given, timeout_s=None)  # a million take minutes
    pruned = msgspec.json.decode(response.body, type=dict[str, Any])
    verb = "would be forgotten" if pruned["dryRun"] else "forgotten"
    mebibytes = pruned["sizeBytes"] / (1 << 20)
    click.echo(f"{pruned['tasks']:,} tasks {verb}, about {mebibytes:,.1f} MiB")
    later_mebibytes = pruned.get("laterBytes", 0) / (1 << 20)
    if later_mebibytes:
        click.echo(
            f"{later_mebibytes:,.1f} MiB of large values are still on the disk: they go once no "
            "program has used them for 10 minutes"
        )
