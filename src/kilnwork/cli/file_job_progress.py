"""Progress of a file job: rate and remaining time while it runs, then its outcome.

Used by `upload --watch`, `redrive --watch`, and by commands that wait for a job.
"""

import asyncio
import contextlib
from typing import Any

import click
import msgspec

from kilnwork.api import filejobs
from kilnwork.cli import downloads, errors, file_jobs, session, wait_notice
from kilnwork.kit import progress_meter


async def follow(s: session.Session, job: str, *, output: str | None) -> None:
    """Show the progress of a file job until it finishes, then write its results to `output`.

    Raises `errors.TaskFailed`. If the user interrupts it, it prints that the job continues.
    """
    try:
        last = await wait_until_finished(s, job)
    except asyncio.CancelledError:
        click.echo(
            f"job {job} continues: `kiln wait {job}` waits for it, `kiln files {job}` shows it, "
            f"`kiln cancel {job}` stops it",
            err=True,
        )
        raise
    _tell(last)
    await report_bad_records(s, last)
    if file_jobs.phase(last) is filejobs.FileJobPhase.SUCCEEDED and output is not None:
        await _bring(s, job, output)
    file_jobs.check_end(last)
    if output is None and not file_jobs.all_bad(file_jobs.records(last)):
        click.echo(f"`kiln results {job} -o FILE` prints the result", err=True)


async def _bring(s: session.Session, job: str, output: str) -> None:
    try:
        count = await downloads.fetch(s, job, output)
    except errors.CommandError as error:
        again = f"the result is kept: `kiln results {job} -o FILE` downloads it"
        raise errors.CommandError(f"{error}; {again}") from error
    if output != downloads.STDOUT:
        click.echo(f"{output}: {file_jobs.size_text(count)}", err=True)


async def report_bad_records(s: session.Session, job: file_jobs.Job) -> None:
    """Print the number of bad records of a file job and the problem of the first.

    It is printed as an error if all records are bad.
    """
    counts = file_jobs.records(job)
    if not counts.failed:
        return
    are = "is" if counts.failed == 1 else "are"
    bad = f"{counts.failed:,} of {file_jobs.counted(counts.total, 'record')} {are} bad"
    if file_jobs.all_bad(counts):
        bad = f"WARNING: NO RECORD HAS A RESULT, {bad}"
    click.echo(f"{bad}: `kiln results {job['id']} --errors` lists them", err=True)
    first = await read_first_bad_record(s, job["id"])
    if first is not None:
        click.echo(f"  the first, line {first['line']}: {first['reason']}", err=True)


async def read_first_bad_record(s: session.Session, job: str) -> dict[str, Any] | None:
    """Return the first entry among the errors of a file job, or None if there is none so far."""
    got = b""
    wanted = {**file_jobs.namespace_query(s), "partial": "true"}
    stream = s.stream(file_jobs.path(job, "errors"), query=wanted)
    with contextlib.suppress(*errors.SERVER_ERRORS, msgspec.MsgspecError):
        async with contextlib.aclosing(stream) as pieces:
            async for piece in pieces:
                got += piece
                if b"\n" in piece:
                    break
        return msgspec.json.decode(got.partition(b"\n")[0], type=dict[str, Any])
    return None


async def wait_until_finished(
    s: session.Session, job: str, *, timeout_s: float | None = None
) -> file_jobs.Job:
    """Wait until a file job finishes and return its document.

    Raises `errors.TimedOut` after `timeout_s`.
    """
    counted = progress_meter.Meter(None, progress_meter.format_count, unit=" records")
    last: file_jobs.Job | None = None
    try:
        async with (
            asyncio.timeout(timeout_s),
            wait_notice.waiting(f"job {job} is accepted", every_s=5.0) as waiting,
            contextlib.aclosing(file_jobs.follow(s, job)) as found,
        ):
            async for last in found:
                waiting.say(_line(last, counted, now_s=s.clock.monotonic()))
    except TimeoutError as error:
        where = "" if last is None else f"; {file_jobs.sentence(last)}"
        raise errors.TimedOut(
            f"job {job} has not finished within {timeout_s:g} s{where}"
        ) from error
    if last is None:
        raise errors.CommandError(f"the server sent no state of job {job}")
    return last


def _line(job: file_jobs.Job, counted: progress_meter.Meter, *, now_s: float) -> str:
    counts, parts = file_jobs.records(job), file_jobs.parts(job)
    counted.total = file_jobs.lines(job)
    counted.at(counts.total, now_s=now_s)
    left_s = (job.get("progress") or {}).get("etaSeconds")
    text = f"{file_jobs.phase(job)}  {counted.text(left_s=left_s)}"
    text += f"  {parts.get('succeeded', 0)}/{parts.get('total', 0)} parts"
    if counts.failed:
        text += f"  {counts.failed:,} bad"
    if parts.get("failed"):
        text += f"  {parts['failed']:,} parts failed"
    return f"{text}  {job['message']}" if job.get("message") else text


def _tell(job: file_jobs.Job) -> None:
    counts = file_jobs.records(job)
    if file_jobs.phase(job) is not filejobs.FileJobPhase.SUCCEEDED:
        return
    done = f"{counts.succeeded:,} of {file_jobs.counted(counts.total, 'record')}"
    text = f"job {job['id']} has succeeded: {done}"
    if counts.skipped:
        text += f", {counts.skipped:,} without a result"
    click.echo(text, err=True)
