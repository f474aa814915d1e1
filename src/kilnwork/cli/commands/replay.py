"""`kiln replay`: run a generation of a SyncSet again on the same data."""

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    job_lookup,
    object_waits,
    options,
    session,
    shell_completion,
    sync_set_requests,
)


@click.command()
@click.argument("name", metavar="SYNCSET", shell_complete=shell_completion.subjects)
@options.target
@click.option(
    "--generation",
    type=click.IntRange(min=1),
    metavar="N",
    help="Generation to run again, one of status.generations; default: the newest.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the generation finishes; exit with 6 if it does not succeed.",
)
@click.option(
    "--timeout",
    type=options.DURATION,
    default=None,
    help="Stop waiting after this time and exit with 5.",
)
def command(name: str, generation: int | None, timeout: float | None, **asked: bool) -> None:
    """Run a generation of a SyncSet again, with the same flow and data, as a new generation.

    \b
    kiln replay eod-risk
    kiln replay eod-risk --generation 7 --wait

    Snapshots are selected by the digests of the earlier generation, whatever the sources contain
    now. Steps marked `deterministic` reuse their results. `spec.keep.generations` sets how many
    generations are kept for replay.
    """
    session.run(lambda s: _replay(s, name, generation, wait=asked["wait"], timeout_s=timeout))


async def _replay(
    s: session.Session,
    word: str,
    generation: int | None,
    *,
    wait: bool,
    timeout_s: float | None,
) -> None:
    name = job_lookup.plain_name(word, api_kinds.SYNC_SETS)
    number = await sync_set_requests.replay(s, name, generation)
    click.echo(f"SyncSet {name} starts again as generation {number}")
    if not wait:
        return
    subject = object_waits.WaitSubject(api_kinds.SYNC_SETS, name, s.one_namespace())
    found = await object_waits.until(
        s,
        subject,
        lambda seen: seen is None or sync_set_requests.is_over(seen),
        text=f"waiting for SyncSet {name} to be over",
        timeout_s=timeout_s,
    )
    if found is not None:
        sync_set_requests.check_end(found)
        click.echo(sync_set_requests.sentence(found))
