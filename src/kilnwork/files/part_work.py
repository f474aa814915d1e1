"""The task that maps one part of a file for `files.map`, with the same mappers as file jobs.

Imported by name in the slot. The results are stored as a blob, so that neither the journal nor the
user's program holds them until they are read.
"""

import contextlib
import io
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import context_manager_bases, parts
from kilnwork.data.records import part_reader
from kilnwork.data.stores import port
from kilnwork.jobs.work import (
    command_mappers,
    mapper_factory,
    mapper_interface,
    output_writer,
    result_encoding,
    watch,
)
from kilnwork.kit import clock as clocks
from kilnwork.sdk import context, decorator, values

_PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Instructions for reading and mapping one part of a file; the counterpart of
    `filejobs.PartWork`.
    """

    part: filejobs.Part
    spec: filejobs.InputSpec
    header: tuple[str, ...] | None
    batch: int | None
    refuse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The outcome of a part.

    `lines`: the results, each with a line feed at the end. `own`: a byte for each line: 0 if it is
    JSON, 1 if it is a str that the function returned or a line that the command printed, 2 if it is
    bytes that the function returned; empty if all lines are JSON. `errors`: the bad records.
    """

    records: filejobs.Records
    lines: values.Ref[bytes]
    own: bytes
    errors: values.Ref[bytes]


@decorator.task
def run(mapper: "Function | tuple[str, ...]", lines: parts.Part, work: Work) -> Done:
    """Map one part, with a function or a command."""
    out, bad = _Kept(), _Kept()
    found = _Outputs(
        output_writer.Sink(out, "results"),
        lambda: output_writer.Sink(bad, "errors"),
        refuse=work.refuse,
    )
    place = _place(lines, work)
    with found, contextlib.closing(_opened(mapper, found, place, batch=work.batch)) as opened:
        number = work.part.first_line
        for batch in place.reread():
            opened.map_batch(number, batch)
            number += len(batch)
        opened.finish()
        found.finish()
    return Done(
        records=found.records,
        lines=values.put(out.content),
        own=bytes(found.own) if any(found.own) else b"",
        errors=values.put(bad.content),
    )


Function = Callable[..., Any]


def _place(lines: parts.Part, work: Work) -> mapper_factory.MapperContext:
    here, clock = context.context(), clocks.SystemClock()
    first, count = work.part.first_line, work.part.lines

    def read() -> Generator[list[bytes], None, None]:
        with lines.open() as file:
            pieces = iter(lambda: file.read(_PIECE_BYTES), b"")
            yield from part_reader.batches(pieces, work.part, work.spec)

    on_progress = watch.Watch(here, first=first, count=count, clock=clock)
    return mapper_factory.MapperContext(
        setting=mapper_interface.MapperSettings(
            work.spec, first_line=first, on_progress=on_progress, tracebacks=0
        ),
        header=work.header,
        reread=read,
        variables=command_mappers.environment(
            here.task_id, part=work.part.number, run=1, attempt=here.attempt
        ),
        clock=clock,
    )


def _opened(
    mapper: "Function | tuple[str, ...]",
    found: "_Outputs",
    place: mapper_factory.MapperContext,
    *,
    batch: int | None,
) -> mapper_interface.Mapper:
    if isinstance(mapper, tuple):
        return mapper_factory.open_mapper(filejobs.Mapper(command=mapper), found, place)
    text = place.setting.spec.format is filejobs.Format.TEXT
    encode = _marking(result_encoding.encoder(text=text), text=text)
    return mapper_factory.function_mapper(mapper, found, place, batch_records=batch, encode=encode)


class _Str(bytes):
    """A line that the function returned as str."""


class _Bytes(bytes):
    """A line that the function returned as bytes."""


_OWN = {_Str: 1, _Bytes: 2}


def _marking(encode: result_encoding.Encode, *, text: bool) -> result_encoding.Encode:
    def marked(value: Any) -> bytes:
        line = encode(value)
        if isinstance(value, bytes | bytearray):
            return _Bytes(line)
        return _Str(line) if text and isinstance(value, str) else line

    return marked


class _Outputs(output_writer.Outputs):
    """Outputs that also record, in `own`, the kind of each line; see `Done.own`."""

    def __init__(
        self,
        out: output_writer.Sink,
        open_errors: Callable[[], output_writer.Sink],
        *,
        refuse: bool,
    ) -> None:
        super().__init__(out, open_errors, refuse=refuse)
        self.own = bytearray()

    def results(self, lines: Sequence[bytes]) -> None:
        self.own += bytes(_OWN.get(type(line), 0) for line in lines)
        super().results(lines)

    def printed(self, data: bytes) -> None:
        """Add lines that a command has printed; they are recorded as text, not JSON."""
        self.own += b"\1" * data.count(b"\n")
        super().printed(data)


class _Kept(context_manager_bases.Abortable):
    """A `port.Writer` that keeps the written object in memory."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self.bytes = 0

    @property
    def content(self) -> bytes:
        return self._buffer.getvalue()

    def write(self, piece: port.Data) -> None:
        self.bytes += self._buffer.write(piece)

    def commit(self) -> port.ObjectFacts:
        return port.ObjectFacts("", self.bytes, "", 0.0)

    def abort(self) -> None:
        """Do nothing, since no object was stored."""


def values_of(done: Done) -> Iterator[Any]:
    """Yield the results of a part.

    A result is the value decoded from a line of JSON; or the line itself, as str or bytes, if
    `Done.own` marks it as such.
    """
    content = done.lines.value()
    if not done.own:
        yield from _json.decode_lines(content)
        return
    for line, own in zip(content.split(b"\n"), done.own, strict=False):
        yield _DECODERS[own](line)


_json = msgspec.json.Decoder()
_DECODERS: tuple[Callable[[bytes], Any], ...] = (_json.decode, bytes.decode, bytes)
"""Decoders of a line, indexed by its byte in `Done.own`."""
