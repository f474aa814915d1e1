"""Creation of the mapper that a job names. Used by `part` and by `files.part_work`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kilnwork.api import filejobs
from kilnwork.data.records import values
from kilnwork.jobs.work import (
    builtins,
    command_mappers,
    errors,
    function_import,
    function_mappers,
    mapper_interface,
    output_writer,
    result_encoding,
)
from kilnwork.kit import clock as clocks


class MapperContext(NamedTuple):
    """Facts about a part that its mapper needs.

    `header`: the header of a CSV file. `reread` yields the part's records again. `variables`: the
    environment of a command.
    """

    setting: mapper_interface.MapperSettings
    header: tuple[str, ...] | None
    reread: command_mappers.Reread
    variables: Mapping[str, str]
    clock: clocks.Clock


def open_mapper(
    mapper: filejobs.Mapper, out: output_writer.Outputs, place: MapperContext
) -> mapper_interface.Mapper:
    """Create the mapper of a job, which writes to `out`; the caller closes it. Raises
    `MapperUnusable`.
    """
    if mapper.builtin is not None:
        return _builtin(mapper.builtin, out, place)
    if mapper.function is not None:
        function = function_import.import_function(mapper)
        return function_mapper(function, out, place, batch_records=mapper.batch_records)
    if mapper.command:
        spec = place.setting.spec
        rows = spec.format is filejobs.Format.CSV
        return command_mappers.Command(
            mapper.command,
            out,
            variables=place.variables,
            decode=values.decoder(spec, place.header) if rows else None,
            setting=place.setting,
            reread=place.reread,
            clock=place.clock,
        )
    raise errors.MapperUnusable("the mapper names nothing: give one of builtin, function, command")


def function_mapper(
    function: Callable[..., Any],
    out: output_writer.Outputs,
    place: MapperContext,
    *,
    batch_records: int | None = None,
    encode: result_encoding.Encode | None = None,
) -> mapper_interface.Mapper:
    """Return a mapper that calls a function with a record, or with a list of up to `batch_records`.
    `encode` encodes its results; by default it depends on the format of the input."""
    spec = place.setting.spec
    decode = values.decoder(spec, place.header)
    if encode is None:
        encode = result_encoding.encoder(text=spec.format is filejobs.Format.TEXT)
    if batch_records is None:
        return function_mappers.PerRecord(
            function, out, decode=decode, encode=encode, setting=place.setting
        )
    return function_mappers.PerBatch(
        function,
        out,
        size=batch_records,
        decode=decode,
        encode=encode,
        setting=place.setting,
    )


def _builtin(
    name: str, out: output_writer.Outputs, place: MapperContext
) -> mapper_interface.Mapper:
    make = builtins.line_maker(name, place.setting.spec, place.header)
    if make is None:
        raise errors.MapperUnusable(
            f"there is no built-in mapper {name!r}: use one of {', '.join(builtins.NAMES)}, a "
            "function or a command"
        )
    return builtins.Builtin(make, out, setting=place.setting)
