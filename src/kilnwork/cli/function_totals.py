"""Totals of tasks per function: `kiln tasks --by function`.

Used by the command `tasks`. Reads every selected task, so the totals are consistent only for
finished tasks. `kiln status` shows just the counts per state.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

import click
import msgspec

from kilnwork.cli import file_jobs, output_formats, session, task_lists

HEADER = (
    "FUNCTION", "TASKS", "FAILED", "TOOK", "MEAN", "MAX", "CPU", "PEAK", "SLOWEST",
)  # fmt: skip

COMMANDS = "<commands>"
"""Name under which tasks that call no function are summed up."""


class Totals(msgspec.Struct, rename="camel"):
    """Totals of the newest runs of the tasks that call one function.

    Times are in seconds, from the first start of a run to its end or until now. `cpu_seconds` and
    `peak_memory_bytes` are None if no attempt was measured.
    """

    function: str
    tasks: int = 0
    failed: int = 0
    took_seconds: float = 0.0
    """Sum over all tasks; parallel time counts multiple times."""
    max_seconds: float = 0.0
    started: int = 0
    """Number of tasks that have started, from which the mean is computed."""
    cpu_seconds: float | None = None
    """Sum over the newest attempts."""
    peak_memory_bytes: int | None = None
    """Maximum over the attempts."""
    slowest: str = ""
    """Id of the task that took longest."""

    @property
    def mean_seconds(self) -> float:
        """Return the mean time of the function's tasks that have started, or 0."""
        return self.took_seconds / self.started if self.started else 0.0

    def add(self, item: task_lists.Item, *, now: float) -> None:
        """Add a task to the totals of its function."""
        self.tasks += 1
        self.failed += item["state"] == "Failed"
        took = task_lists.took_s(item, now=now)
        if took is not None:
            self.started += 1
            self.took_seconds += took
            if took >= self.max_seconds:
                self.max_seconds, self.slowest = took, item["id"]
        cpu, peak = item.get("cpuSeconds"), item.get("peakMemoryBytes")
        if cpu is not None:
            self.cpu_seconds = (self.cpu_seconds or 0.0) + cpu
        if peak is not None:
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0, peak)


async def by_function(
    items: AsyncIterator[task_lists.Item], *, by: task_lists.Measure, now: float
) -> list[Totals]:
    """Return the totals of each function, sorted by a measure, the highest value first."""
    found: dict[str, Totals] = {}
    async for item in items:
        function = item.get("function") or COMMANDS
        if function not in found:
            found[function] = Totals(function)
        found[function].add(item, now=now)
    return sorted(found.values(), key=lambda one: (-_measured(one, by), one.function))


def _measured(one: Totals, by: task_lists.Measure) -> float:
    if by == "took":
        return one.took_seconds
    return float((one.cpu_seconds if by == "cpu" else one.peak_memory_bytes) or 0)


def table(found: Sequence[Totals]) -> list[str]:
    """Return the lines of a table of totals, with its header."""
    return output_formats.columns(HEADER, [_row(one) for one in found])


def _row(one: Totals) -> tuple[object, ...]:
    started = one.started > 0
    return (
        one.function,
        one.tasks,
        one.failed,
        output_formats.took(one.took_seconds) if started else None,
        output_formats.took(one.mean_seconds) if started else None,
        output_formats.took(one.max_seconds) if started else None,
        None if one.cpu_seconds is None else f"{one.cpu_seconds:.1f}s",
        None if one.peak_memory_bytes is None else file_jobs.size_text(one.peak_memory_bytes),
        task_lists.short_id(one.slowest) if one.slowest else None,
    )


def document(found: Sequence[Totals]) -> dict[str, object]:
    """Return the totals as a JSON document: members in camelCase, with `meanSeconds`."""
    return {
        "items": [msgspec.to_builtins(one) | {"meanSeconds": one.mean_seconds} for one in found]
    }


async def show(
    s: session.Session,
    wanted: Mapping[str, str],
    form: str | None,
    *,
    by: task_lists.Measure,
    headers: bool,
) -> None:
    """Print the totals of all selected tasks."""
    every = task_lists.list_tasks(s, wanted=wanted)
    found = await by_function(every, by=by, now=s.clock.wall())
    if form is not None:
        click.echo(output_formats.document(document(found), form), nl=False)
    elif found:
        for line in table(found)[0 if headers else 1 :]:
            click.echo(line)
    else:
        await s.say_nothing_found("nothing found")
