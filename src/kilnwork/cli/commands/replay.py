"""`kiln replay`: run a generation of a SyncSet again, on the same data."""

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import job_names, object_waits, options, session, set_objects, shell_completion


@click.command()
@click.argument("name", metavar="SYNCSET", shell_complete=shell_completion.subjects)
@options.target
@click.option(
    "--generation", type=click.IntRange(min=1), help="Which one; default the newest that is kept."
)
@click.option("--wait", is_flag=True, help="Wait until it is over; 6 if it ends badly.")
@click.option("--timeout", type=options.DURATION, default=None, help="Wait no longer than this.")
def command(name: str, generation: int | None, timeout: float | None, **asked: bool) -> None:
    """Run data and flow of a generation of a SyncSet again, as a new generation.

    \b
    kiln replay eod-risk
    kiln replay eod-risk --generation 7 --wait

    Every snapshot is that of the first time, by its digest, whatever the sources have now. Steps
    that are `deterministic` use the results that they had. `spec.keep.generations` says how many
    generations can be repeated.
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
    name = job_names.bare(word, api_kinds.SYNC_SETS)
    number = await set_objects.replay(s, name, generation)
    click.echo(f"SyncSet {name} starts again as generation {number}")
    if not wait:
        return
    subject = object_waits.Subject(api_kinds.SYNC_SETS, name, s.one_namespace())
    found = await object_waits.until(
        s,
        subject,
        lambda seen: seen is None or set_objects.is_over(seen),
        text=f"waiting for SyncSet {name} to be over",
        timeout_s=timeout_s,
    )
    if found is not None:
        set_objects.check_end(found)
        click.echo(set_objects.sentence(found))
