"""Reducing of the outputs of all parts to one result: `run` is the call of a job's finalizer.

Without a reducer the result is the concatenation of the outputs in the order of parts: all of it is
read and verified, but large outputs are not copied (`filejobs.OUTPUTS`). A reducer is a mapper that
gets all results at once: a function gets one iterator of them, a command reads them on stdin. The
result is published once, by the commit of part 0, as the results of parts are; so the call may run
twice, or be killed at any time.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple, Protocol

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import part_commits
from kilnwork.data.records import lines, values
from kilnwork.data.stores import port, store_urls
from kilnwork.jobs.work import (
    command_mappers,
    errors,
    function_import,
    function_mappers,
    output_reader,
    output_writer,
    part,
    pipes,
    result_encoding,
    watch,
)
from kilnwork.kit import clock as clocks
from kilnwork.sdk import context

PART = 0
"""Part number under which the result is committed."""

LARGE_BYTES = 1 << 20
"""Average output size from which outputs stay where they are and form the result together: that
saves a third of the disk, and time. Smaller outputs are copied into one file, since opening a file
costs more than reading it."""

_CLOCK = clocks.SystemClock()
_TEXT = filejobs.Format.TEXT


class _Ready(NamedTuple):
    """Outputs to reduce, with the work and the context of the reducing attempt."""

    work: filejobs.ReduceWork
    found: list[output_reader.PartOutput]
    attempt: int
    on_progress: watch.OnProgress
    clock: clocks.Clock


def run(work: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce the outputs of all parts. `work` is the JSON of a `ReduceWork`; return a `Reduced`, as
    JSON data.

    Raises the reducer's exception, `WorkError`, `StoreError` and Cancelled; then this attempt has
    published nothing.
    """
    assigned = msgspec.convert(work, filejobs.ReduceWork)
    here = context.context()

    def make_watch(count: int) -> watch.OnProgress:
        return watch.Watch(here, first=0, count=count, unit="bytes", clock=_CLOCK)

    return part.to_json(
        reduce_parts(assigned, attempt=here.attempt, make_watch=make_watch, clock=_CLOCK)
    )


class MakeWatch(Protocol):
    """Factory of progress functions, which are called with the number of bytes read so far, out of
    `count`.
    """

    def __call__(self, count: int) -> watch.OnProgress: ...


def reduce_parts(
    work: filejobs.ReduceWork, *, attempt: int, make_watch: MakeWatch, clock: clocks.Clock
) -> filejobs.Reduced:
    """Merge or reduce the outputs of all parts, as `run`."""
    store = store_urls.open_store(work.store)
    if part_commits.find(store, PART, work.run) is not None:
        return filejobs.Reduced()
    try:
        found = output_reader.outputs_of(store, work.parts)
        size = sum(each.output.bytes for each in found)
        size += sum(each.errors.bytes for each in found if each.errors is not None)
        _publish(store, _Ready(work, found, attempt, make_watch(size), clock))
    except output_reader.OutputDamaged as damage:
        all_of = {each.part: each for each in output_reader.find_missing(store, work.parts)}
        all_of.setdefault(damage.found.part, damage.found)
        return filejobs.Reduced(damaged=tuple(all_of[number] for number in sorted(all_of)))
    return filejobs.Reduced()


def _publish(store: port.Store, ready: _Ready) -> None:
    started = ready.clock.wall()
    aside = futures.ThreadPoolExecutor(1, thread_name_prefix="kiln-merge")
    try:
        reader = output_reader.PartOutputReader(store, on_progress=ready.on_progress, aside=aside)
        if _outputs_stay(ready):
            output, bad = reader.sum_outputs(ready.found)
        else:
            output, bad = _write_result(store, ready, reader)
    finally:
        aside.shutdown(cancel_futures=True)
    ours = filejobs.Commit(
        part=PART,
        run=ready.work.run,
        attempt=ready.attempt,
        outcome=filejobs.PartOutcome.SUCCEEDED,
        records=sum((each.commit.records for each in ready.found), start=filejobs.Records()),
        output=output,
        errors=bad,
        started=started,
        finished=ready.clock.wall(),
        worker=os.uname().nodename,
    )
    part.publish_commit(store, ours)


def _outputs_stay(ready: _Ready) -> bool:
    """Return whether the outputs of the parts stay where they are and together form the result."""
    reducer = ready.work.reducer
    size = sum(each.output.bytes for each in ready.found)
    keeps = reducer is None or reducer.builtin == "identity"
    return keeps and size >= LARGE_BYTES * max(len(ready.found), 1)


def _write_result(
    store: port.Store, ready: _Ready, reader: output_reader.PartOutputReader
) -> tuple[filejobs.StoredFile, filejobs.StoredFile | None]:
    """Write the result, and the bad records if there are any, to new files, and return these."""
    work = ready.work
    name = part.unused_name(store, f"result/{work.run}-{ready.attempt}")
    with part.open_outputs(store, name) as out:
        results = reader.read_outputs(ready.found)
        if work.reducer is None or work.reducer.builtin is not None:
            _check_builtin(work.reducer)
            out.copy(results, sum(each.output.lines for each in ready.found))
        elif work.reducer.function is not None:
            _call_function(work, results, out)
        else:
            _run_command(ready, reader, results, out)
        for _ in results:  # read what the reducer left, since all outputs must be verified
            pass
        reported = sum(each.errors.lines for each in ready.found if each.errors is not None)
        out.copy_errors(reader.read_errors(ready.found), reported)
        return out.finish()


def _check_builtin(reducer: filejobs.Mapper | None) -> None:
    if reducer is not None and reducer.builtin != "identity":
        raise errors.MapperUnusable(
            f"there is no built-in reducer {reducer.builtin!r}: use identity, a function, a "
            "command, or none, which keeps the results as they are"
        )


def _call_function(
    work: filejobs.ReduceWork, results: Iterator[bytes], out: output_writer.Outputs
) -> None:
    """Call the reducer function with an iterator of all results, and write the values that it
    returns.
    """
    reducer = work.reducer or filejobs.Mapper()
    function = function_import.import_function(reducer)
    spec = filejobs.InputSpec(format=_result_format(work))
    decode = values.decoder(spec)
    given = (
        decode(line) for block in lines.whole_blocks(results) for line in lines.split_block(block)
    )
    for line in function_mappers.lines_of(
        function, given, result_encoding.encoder(text=spec.format is _TEXT)
    ):
        out.printed(line + b"\n")


def _result_format(work: filejobs.ReduceWork) -> filejobs.Format:
    """Return the format of the results that a reducer reads: CSV rows and array elements have
    become JSON values.
    """
    return _TEXT if work.format is _TEXT else filejobs.Format.JSONL


def _run_command(
    ready: _Ready,
    reader: output_reader.PartOutputReader,
    results: Iterator[bytes],
    out: output_writer.Outputs,
) -> None:
    """Run a command with all results on its stdin."""
    work = ready.work
    reducer = work.reducer or filejobs.Mapper()
    if not reducer.command:
        raise errors.MapperUnusable("the reducer names nothing: give a function or a command")
    variables = command_mappers.environment(
        work.job, part=PART, run=work.run, attempt=ready.attempt
    )
    printed = command_mappers.CommandOutput(out.printed)
    running = pipes.Piped(
        reducer.command, variables, printed, clock=ready.clock, check=reader.check
    )
    with contextlib.closing(running):
        for piece in results:
            running.write(piece)
        running.finish()
        printed.finish()
    if printed.bad:
        raise errors.CommandFailed(
            f"the reducer wrote to descriptor {pipes.REPORTS}, where mappers report bad records"
        )
