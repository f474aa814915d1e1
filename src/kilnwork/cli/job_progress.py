"""Progress of a Job until it finishes: a bar with counts in a terminal, and failed indexes.

Used by `kiln run-job --watch` and `kiln jobs NAME --watch`. Everything goes to standard error; the
bar is shown only if that is a terminal.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    job_fields,
    job_lists,
    job_lookup,
    object_waits,
    session,
    wait_notice,
)
from kilnwork.kit import progress_meter

MAX_SHOWN = 50
"""Maximum number of failed indexes that are printed; the others are counted."""


async def follow(s: session.Session, name: str) -> None:
    """Show the progress of a Job until it finishes.

    Raises `errors.TaskFailed` unless it succeeds, and `errors.Missing` if it is deleted. If the
    user interrupts it, it prints that the Job continues.
    """
    failures = _Failures(s, name)
    try:
        last = await _until_over(s, name, failures)
    except asyncio.CancelledError:
        click.echo(
            f"Job {name} continues: `kiln jobs {name} --watch` follows it, "
            f"`kiln cancel job/{name}` stops it",
            err=True,
        )
        raise
    await failures.show(last)
    job_fields.check_end(last)
    took = job_fields.took_s(last, now=s.clock.wall())
    text = f"{job_fields.sentence(last)}"
    click.echo(
        text if took is None else f"{text}, in {progress_meter.format_duration(took)}", err=True
    )


async def _until_over(s: session.Session, name: str, failures: "_Failures") -> job_lookup.Item:
    counted = progress_meter.Meter(None, progress_meter.format_count, unit=" indexes")
    subject = object_waits.WaitSubject(api_kinds.JOBS, name, s.one_namespace())
    seen, last_state, shown = "", "", _bar(f"Job {name} is accepted")
    async with shown as bar, contextlib.aclosing(object_waits.versions(s, subject)) as versions:
        async for found in versions:
            uid = found["metadata"]["uid"] if found is not None else ""
            if found is None or (seen and uid != seen):
                raise errors.Missing(f"Job {name} was deleted")
            seen = uid
            if job_fields.is_over(found):
                return found
            if bar is not None:
                bar.say(line(found, counted, now_s=s.clock.monotonic()))
            elif (text := _state(found)) != last_state:
                click.echo(f"{name}: {text}", err=True)
                last_state = text
            await failures.show(found)
    raise AssertionError("versions() never ends")


@contextlib.asynccontextmanager
async def _bar(text: str) -> AsyncIterator[wait_notice.WaitNotice | None]:
    """Yield the notice that shows the bar in a terminal, or None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    async with wait_notice.waiting(text) as bar:
        yield bar


def _state(found: Mapping[str, Any]) -> str:
    """Return the phase, reason and message of a Job as text.

    The text does not change with every index that finishes.
    """
    known = job_fields.status(found)
    phase, reason = job_fields.phase(found) or "accepted", known.get("reason") or ""
    text = phase if reason in ("", phase, "Started") else f"{phase} ({reason})"
    return f"{text}: {known['message']}" if phase == "Queued" and known.get("message") else text


def line(found: Mapping[str, Any], counted: progress_meter.Meter, *, now_s: float) -> str:
    """Return the progress of a Job in one line: phase, bar, counts, remaining time and rate."""
    counts, known = job_fields.counts(found), job_fields.status(found)
    text = job_fields.phase(found) or "accepted"
    if counts.total:
        counted.total = counts.total
        counted.at(counts.succeeded + counts.failed, now_s=now_s)
        text += f"  {counted.text()}"
    if counts.running:
        text += f"  {counts.running:,} running"
    if counts.failed:
        text += f"  {counts.failed:,} failed"
    return f"{text}  {known['message']}" if known.get("message") else text


class _Failures:
    """Printer of the failed indexes of a Job: prints each index once, up to MAX_SHOWN indexes."""

    def __init__(self, s: session.Session, name: str) -> None:
        self._session = s
        self._name = name
        self._shown: set[tuple[int, int]] = set()
        self._counted = (0, 0)

    async def show(self, found: Mapping[str, Any]) -> None:
        """Print the indexes that have failed since the last call; beyond MAX_SHOWN only their
        number.

        `found`: the current version of the Job.
        """
        counts, run = job_fields.counts(found), int(job_fields.status(found).get("run", 1))
        if counts.total < 2 or not counts.failed or self._counted == (run, counts.failed):
            return
        self._counted = (run, counts.failed)
        if len(self._shown) < MAX_SHOWN:
            with contextlib.suppress(*errors.SERVER_ERRORS):  # reported again at the end of the Job
                await self._print_new()
        if job_fields.is_over(found) and counts.failed > len(self._shown):
            rest = counts.failed - len(self._shown)
            listing = f"`kiln jobs {self._name} --indexes --state Failed` lists them"
            click.echo(f"{rest:,} more indexes have failed: {listing}", err=True)

    async def _print_new(self) -> None:
        failed = job_lists.list_indexes(self._session, self._name, state="Failed")
        async with contextlib.aclosing(failed) as listed:
            async for index in listed:
                key = (int(index["run"]), int(index["number"]))
                if key in self._shown:
                    continue
                if len(self._shown) == MAX_SHOWN:
                    return
                self._shown.add(key)
                click.echo(failure(index), err=True)


def failure(index: Mapping[str, Any]) -> str:
    """Return one line of text about a failed index."""
    label = "" if index["label"] == str(index["number"]) else f" ({index['label']})"
    why = index.get("message") or index.get("reason") or "no reason is known"
    return f"index {index['number']}{label} failed: {why}"
