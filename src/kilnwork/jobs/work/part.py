"""Mapping of one part of a file: `run` is the call that the task of a part makes in a slot.

Its result is a commit record; the outcome of the task proves nothing. The name of the output is
unique to this attempt, so that an abandoned attempt that continues does no harm: another attempt
has committed before it, and its own commit is rejected (`kilnwork.data.part_commits`). `run` can be
repeated at any time.
"""

import contextlib
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data import part_commits
from kilnwork.data.records import part_reader
from kilnwork.data.stores import port, store_urls
from kilnwork.jobs.work import (
    command_mappers,
    errors,
    mapper_factory,
    mapper_interface,
    output_writer,
    watch,
)
from kilnwork.kit import clock as clocks
from kilnwork.sdk import context

PIECE_BYTES = 128 << 10
"""Number of bytes mapped at once: the records and their results fit into the cache of a core, and
freed memory is reused. With 1 MiB each part took 3,000 new pages of the system and 7 % more
time."""

_CLOCK = clocks.SystemClock()


def run(work: Mapping[str, Any]) -> dict[str, Any]:
    """Map a part. `work` is the JSON of a `PartWork`; return the `Commit` that then exists, as JSON
    data.

    This may be the commit of another attempt, or of a user who cancelled. Raises the mapper's
    exception, `WorkError`, `StoreError` and Cancelled; then this attempt has committed nothing.
    """
    assigned = msgspec.convert(work, filejobs.PartWork)
    here = context.context()
    on_progress = watch.Watch(
        here, first=assigned.part.first_line, count=assigned.part.lines, clock=_CLOCK
    )
    commit = map_part(assigned, attempt=here.attempt, on_progress=on_progress, clock=_CLOCK)
    return to_json(commit)


def to_json(value: msgspec.Struct) -> dict[str, Any]:
    """Convert a value to plain JSON data, which can be read where nothing is unpickled."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return found


def map_part(
    work: filejobs.PartWork, *, attempt: int, on_progress: watch.OnProgress, clock: clocks.Clock
) -> filejobs.Commit:
    """Map a part, as `run`. `on_progress`: see `mapper_interface.MapperSettings`."""
    store = store_urls.open_store(work.store)
    known = part_commits.find(store, work.part.number, work.run)
    if known is not None:
        return known
    started = clock.wall()
    place = mapper_factory.MapperContext(
        setting=mapper_interface.MapperSettings(
            work.format, first_line=work.part.first_line, on_progress=on_progress
        ),
        header=work.header,
        reread=_Input(work),
        variables=command_mappers.environment(
            work.job, part=work.part.number, run=work.run, attempt=attempt
        ),
        clock=clock,
    )
    name = unused_name(store, f"out/{work.part.number}-{work.run}-{attempt}")
    with open_outputs(store, name, refuse=work.bad_records is filejobs.BadRecords.FAIL) as out:
        done = _map_records(work, out, place)
        ours = filejobs.Commit(
            part=work.part.number,
            run=work.run,
            attempt=attempt,
            outcome=done.outcome,
            records=out.records,
            output=done.output,
            errors=done.errors,
            message=done.message,
            started=started,
            finished=clock.wall(),
            worker=os.uname().nodename,
        )
    return publish_commit(store, ours)


class _Done(NamedTuple):
    outcome: filejobs.PartOutcome
    output: filejobs.StoredFile | None
    errors: filejobs.StoredFile | None
    message: str = ""


class _Input:
    """Function that reads the records of a part; each call reads them again."""

    def __init__(self, work: filejobs.PartWork) -> None:
        self._work = work

    def __call__(self) -> Generator[list[bytes], None, None]:
        work = self._work
        store = store_urls.open_store(work.input_store or work.store)
        with store.read(work.input, start=work.part.start, end=work.part.end) as pieces:
            yield from part_reader.batches(_split_pieces(pieces), work.part, work.format)


def _split_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES):
            yield piece[start : start + PIECE_BYTES]


def _map_records(
    work: filejobs.PartWork, out: output_writer.Outputs, place: mapper_factory.MapperContext
) -> _Done:
    """Map the records of a part and finish the output files. Failures that a retry cannot repair
    give a failed outcome.
    """
    with contextlib.closing(place.reread()) as batches:
        try:
            try:
                _feed_mapper(work, out, place, batches)
            except errors.RecordsRefused as error:
                if not error.input:
                    raise
                for (
                    _
                ) in batches:  # to the end, where the checksum is compared with that of the upload
                    pass
                return _Done(filejobs.PartOutcome.FAILED, None, out.finish_errors(), str(error))
        except data_errors.InputChanged as error:
            return _Done(filejobs.PartOutcome.FAILED, None, None, str(error))
    return _Done(filejobs.PartOutcome.SUCCEEDED, *out.finish())


def _feed_mapper(
    work: filejobs.PartWork,
    out: output_writer.Outputs,
    place: mapper_factory.MapperContext,
    batches: Iterator[list[bytes]],
) -> None:
    with contextlib.closing(mapper_factory.open_mapper(work.mapper, out, place)) as mapper:
        number = work.part.first_line
        for batch in batches:
            mapper.map_batch(number, batch)
            number += len(batch)
        mapper.finish()


def open_outputs(store: port.Store, name: str, *, refuse: bool = False) -> output_writer.Outputs:
    """Return outputs in the unfinished files `NAME.ndjson` and, if there are bad records,
    `NAME.errors`."""

    def sink(ending: str) -> output_writer.Sink:
        key = name + ending
        return output_writer.Sink(store.writer(key, create=True), key)

    return output_writer.Outputs(sink(".ndjson"), lambda: sink(".errors"), refuse=refuse)


def unused_name(store: port.Store, name: str) -> str:
    """Return `name`, or a variant of it if the name is in use.

    It is in use if an attempt with the same number has run before the journal was lost.
    """
    for ending in (".ndjson", ".errors"):
        try:
            store.head(name + ending)
        except data_errors.ObjectMissing:
            continue
        return f"{name}-{os.urandom(6).hex()}"
    return name


def publish_commit(store: port.Store, ours: filejobs.Commit) -> filejobs.Commit:
    """Publish the commit of this attempt, and return the commit that then exists.

    If another attempt has committed before, delete the files that only this commit names.
    """
    winner = part_commits.publish(store, ours)
    if winner != ours:
        named = {file.key for file in (winner.output, winner.errors) if file is not None}
        mine = {file.key for file in (ours.output, ours.errors) if file is not None}
        store.delete(mine - named - {filejobs.OUTPUTS})
    return winner
