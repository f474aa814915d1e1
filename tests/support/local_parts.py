"""Parts of file jobs in a local store, mapped in this process. Used by tests of `jobs.work`."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.data.records import intake
from kilnwork.data.stores import local, port
from kilnwork.jobs.work import part, reduce
from kilnwork.kit import clock, ids
from kilnwork.sdk import context


def ignore_progress(_: int) -> None:
    """Report progress to nothing: the part is never asked to stop."""


class World:
    """The directory of a job with an input; `map` maps its parts."""

    def __init__(self, directory: Path, content: bytes, **spec: Any) -> None:
        self.store = local.LocalStore(directory)
        self.spec = msgspec.convert(spec, filejobs.FileJobSpec)
        taken = intake.Intake(self.spec)
        stored = b"".join(taken.feed(content))
        rest, self.manifest = taken.finish()
        self.store.put("input", stored + rest)

    def work(self, number: int = 1, *, run: int = 1) -> filejobs.PartWork:
        return filejobs.PartWork(
            store=self.store.url,
            job="job",
            input="input",
            format=self.spec.input,
            part=self.manifest.parts[number - 1],
            run=run,
            mapper=self.spec.mapper,
            bad_records=self.spec.bad_records,
            header=self.manifest.header,
        )

    def map(self, number: int = 1, *, attempt: int = 1, run: int = 1) -> filejobs.Commit:
        return self.map_by(ignore_progress, number, attempt=attempt, run=run)

    def map_by(
        self, on_progress: Callable[[int], None], number: int = 1, *, attempt: int = 1, run: int = 1
    ) -> filejobs.Commit:
        """Map one part as a task does; `on_progress` is called with the progress."""
        task = ids.TaskId(number.to_bytes(16, "big"))
        context.begin(context.Context(task, run=run, attempt=attempt))
        try:
            work = self.work(number, run=run)
            return part.map_part(
                work, attempt=attempt, on_progress=on_progress, clock=clock.SystemClock()
            )
        finally:
            context.end()

    def map_all(self) -> tuple[bytes, list[dict[str, Any]]]:
        """Map all parts; return their results in order, and their bad records."""
        done = [self.map(each.number) for each in self.manifest.parts]
        for commit in done:
            found = commit.records
            assert found.total == found.succeeded + found.failed + found.skipped
        assert sum(commit.records.total for commit in done) == self.manifest.lines
        results = b"".join(self.content(commit.output) for commit in done)
        bad = itertools.chain.from_iterable(self.reports(commit) for commit in done)
        return results, list(bad)

    def reduce_call(self, *, attempt: int = 1) -> dict[str, Any]:
        """Reduce all parts as a worker does, from JSON to JSON."""
        runs = tuple((each.number, 1) for each in self.manifest.parts)
        work = filejobs.ReduceWork(store=self.store.url, job="job", parts=runs, run=1)
        context.begin(context.Context(ids.TaskId(bytes(16)), run=1, attempt=attempt))
        try:
            return reduce.run(msgspec.to_builtins(work))
        finally:
            context.end()

    def content(self, file: filejobs.StoredFile | None) -> bytes:
        assert file is not None
        found = port.read_all(self.store, file.key, most=1 << 30)
        assert (len(found), found.count(b"\n")) == (file.bytes, file.lines)
        return found

    def reports(self, commit: filejobs.Commit) -> list[dict[str, Any]]:
        if commit.errors is None:
            return []
        return [json.loads(line) for line in self.content(commit.errors).splitlines()]

    def stored(self) -> list[str]:
        """Return all keys in the directory except the input."""
        return [facts.key for facts in self.store.list() if facts.key != "input"]
