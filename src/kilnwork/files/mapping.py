"""`files.map`: indexes a file and submits a task for each of its parts.

Public as `kilnwork.files.map`. Workers read a file where it is, if they see the files of this
machine. Otherwise, and if the file is compressed, a JSON array or not a regular file, it is first
copied into a blob with one record per line.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data import parts
from kilnwork.data.records import in_place_indexing, intake
from kilnwork.files import mapped_file, part_work
from kilnwork.sdk import errors, session
from kilnwork.sdk import task as sdk_task

_BLOCK_BYTES = 1 << 20
_HEAD_BYTES = 16

_BY_NAME = {".csv": "csv", ".tsv": "csv", ".txt": "text", ".log": "text"}


def map(  # noqa: A001, PLR0913 - files.map; options of one thing, each with its default
    path: str | os.PathLike[str],
    function: Callable[..., Any] | Sequence[str],
    *,
    items_per_part: int = filejobs.DEFAULT_ITEMS_PER_PART,
    bytes_per_part: int | None = None,
    batch: int | None = None,
    format: str | None = None,  # noqa: A002 - as the command line and the REST API call it
    delimiter: str | None = None,
    blank: str = "skip",
    bad_records: str = "report",
    max_failed: int | str | None = None,
    retries: int = 2,
    timeout: float | None = None,
) -> mapped_file.Mapped:
    """Call a function with each record of a file, in parallel; return a `Mapped` with the results.

    Reads the file once (about a second per GB), submits a task for each part and returns. The
    function gets a record and returns a JSON value, or None for no result; a generator function may
    yield several results. With `batch=n` it gets lists of up to n records and returns a list with a
    result for each. It runs in slots, under the same rules for functions and their modules as for
    `@kiln.task`. Instead of a function, a command can be given as a list of strings. The command
    gets the records of a part on its standard input, one per line.

    `items_per_part`: the number of records after which a part ends. With the default, a fast
    function takes some seconds for a part; use fewer records for a slow function, so that each slot
    gets two parts or more. `bytes_per_part`: the size in bytes at which a part ends; by default
    there is no limit. For a file of more than 10,000 parts both limits are doubled. `batch`: the
    maximum number of records of a list; by default records are passed one by one. `format`:
    "jsonl", "text", "csv" or "json" (one array); the default depends on the file's name, and is
    "jsonl" for names without a known ending. `delimiter`: the delimiter of CSV; by default a comma,
    or a tab for .tsv. `blank`: "skip" ignores blank lines, "record" treats each as a record.

    A record is bad if it cannot be read or if the function raises an exception for it.
    `bad_records`: "report" lists bad records in `Mapped.errors` and continues, "fail" fails the
    part. `max_failed`: the maximum number of bad records, or their maximum percentage such as "1%";
    more of them stop the map with TooManyFailed. By default any number is allowed. `retries`: how
    often a failed part is retried, not counting losses of workers; with `bad_records="fail"` there
    are no retries. `timeout`: the time limit of each attempt at a part, in seconds; by default
    there is none.

    Raises BadOption, NoSession, `InputRefused` (a DataError) for a file that cannot be read in this
    format or has no record, `FileChanged`, OSError. Errors of parts are raised by `Mapped`.
    """
    spec = _spec(path, locals())
    limit = _limit(max_failed)
    source = _indexed(Path(path), spec)
    if not source.manifest.lines:
        raise data_errors.InputRefused(f"{os.fspath(path)} is empty: there is nothing to map")
    refuse = spec.bad_records is filejobs.BadRecords.FAIL
    mapper = _mapper(function, batch=batch)
    task = part_work.run.options(
        name=f"map {_shown(mapper)}",
        retries=0 if refuse else retries,
        timeout=timeout,
    )
    futures = [
        task.submit(
            mapper,
            parts.Part(
                source.file, part.start, part.end, part.number - 1, len(source.manifest.parts),
                part.first_line, part.lines,
            ),
            part_work.Work(
                part=part,
                spec=spec.input,
                header=source.manifest.header,
                batch=batch,
                refuse=refuse,
            ),
        )
        for part in source.manifest.parts
    ]  # fmt: skip
    return mapped_file.Mapped(
        futures, path=os.fspath(path), lines=source.manifest.lines, limit=limit
    )


def _mapper(function: Callable[..., Any] | Sequence[str], *, batch: int | None) -> Any:
    """Return the mapper to send to the slots: a command, or a function without its task
    decorator.
    """
    if isinstance(function, list | tuple) and function and all(type(w) is str for w in function):
        if batch is not None:
            raise errors.BadOption("files.map: batch is for functions: a command reads all records")
        return tuple(function)
    if not callable(function):
        raise errors.BadOption(
            f"files.map: {function!r} is neither a function nor a list of words: give a function "
            'that takes a record, or a command such as ["jq", "-c", ".x"]'
        )
    return sdk_task.function_of(function)


class _Indexed(NamedTuple):
    file: parts.SplitFile
    manifest: filejobs.Manifest


def _spec(path: str | os.PathLike[str], given: dict[str, Any]) -> filejobs.FileJobSpec:
    """Return the options as the spec of a file job. Raises BadOption."""
    name = os.fspath(path).lower().removesuffix(".gz")
    kind = given["format"] or next((f for end, f in _BY_NAME.items() if name.endswith(end)), None)
    options = {
        "input": {
            "format": kind or "jsonl",
            "blank": given["blank"],
            "delimiter": given["delimiter"] or ("\t" if name.endswith(".tsv") else ","),
        },
        "itemsPerPart": given["items_per_part"],
        "bytesPerPart": given["bytes_per_part"],
        "badRecords": given["bad_records"],
        "mapper": {"function": "files:map", "batchRecords": given["batch"]},
    }
    try:
        return msgspec.convert(options, filejobs.FileJobSpec)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$.")
        raise errors.BadOption(f"files.map: {_option(where)}: {text}") from error


def _option(where: str) -> str:
    """Return the option of `map` that sets the last field in a path such as
    `input.maxLineBytes`.
    """
    name = where.rstrip("`").rpartition(".")[2]
    snake = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
    return {"batch_records": "batch"}.get(snake, snake)


def _limit(max_failed: int | str | None) -> mapped_file.Limit:
    try:
        if isinstance(max_failed, str) and max_failed.endswith("%"):
            share = float(max_failed[:-1])
            if 0 <= share <= 100:
                return mapped_file.Limit(percent=share)
        elif max_failed is None or (type(max_failed) is int and max_failed >= 0):
            return mapped_file.Limit(records=max_failed)
    except ValueError:
        pass
    raise errors.BadOption(
        f"files.map: max_failed={max_failed!r}: must be a number of records, a percentage such as "
        '"1%", or None'
    )


def _indexed(path: Path, spec: filejobs.FileJobSpec) -> _Indexed:
    """Return the file and its parts; reads the whole file once."""
    full = os.path.abspath(path)  # noqa: PTH100 - symbolic links stay unresolved
    here = session.current()
    with path.open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        head = file.read(_HEAD_BYTES) if stat.S_ISREG(before.st_mode) else b""
        if stat.S_ISREG(before.st_mode):
            file.seek(0)
            if here.shares_files and not in_place_indexing.needs_rewriting(head, spec.input):
                manifest = in_place_indexing.manifest(file.fileno(), spec, digest=False)
                _check_same(full, before, os.fstat(file.fileno()))
                ended = bool(manifest.parts) and os.pread(file.fileno(), 1, before.st_size - 1)
                found = parts.SplitFile(full, before.st_size, before.st_mtime_ns, ended == b"\n")
                return _Indexed(found, manifest)
        taken = intake.Intake(spec)
        with here.blobs.writer() as new:
            for block in _blocks(file):
                for piece in taken.feed(block):
                    new.write(piece)
            rest, manifest = taken.finish()
            new.write(rest)
            digest, _ = new.commit()
    # No file has this name: its parts are read from the blob.
    name = f"{full} (when it was mapped)"
    return _Indexed(parts.SplitFile(name, manifest.bytes, 0, ended=True, blob=digest), manifest)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_BLOCK_BYTES), b"")


def _check_same(path: str, before: os.stat_result, after: os.stat_result) -> None:
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise data_errors.FileChanged(
            f"{path} has changed while it was indexed: map it when no process writes it"
        )


def _shown(mapper: Any) -> str:
    if isinstance(mapper, tuple):
        return " ".join(mapper)
    return str(getattr(mapper, "__name__", type(mapper).__name__))
