"""Selection of the mapper that a job names."""

from collections.abc import Generator
from pathlib import Path

import pytest

from kilnwork.api import filejobs
from kilnwork.data.stores import local
from kilnwork.jobs.work import (
    builtins,
    command_mappers,
    errors,
    function_mappers,
    mapper_factory,
    mapper_interface,
    output_writer,
)
from kilnwork.kit import clock


@pytest.fixture
def out(tmp_path: Path) -> output_writer.Outputs:
    store = local.LocalStore(tmp_path)
    return output_writer.Outputs(
        output_writer.Sink(store.writer("out"), "out"),
        lambda: output_writer.Sink(store.writer("bad"), "bad"),
    )


def _no_records() -> Generator[list[bytes], None, None]:
    yield []


def opened(mapper: filejobs.Mapper, out: output_writer.Outputs) -> mapper_interface.Mapper:
    settings = mapper_interface.MapperSettings(
        filejobs.InputSpec(), first_line=1, on_progress=lambda number: None
    )
    context = mapper_factory.MapperContext(settings, None, _no_records, {}, clock.SystemClock())
    made = mapper_factory.open_mapper(mapper, out, context)
    made.close()
    return made


@pytest.mark.parametrize(
    ("mapper", "kind"),
    [
        (filejobs.Mapper(builtin="identity"), builtins.Builtin),
        (filejobs.Mapper(function="json:dumps"), function_mappers.PerRecord),
        (filejobs.Mapper(function="json:dumps", batch_records=2), function_mappers.PerBatch),
        (filejobs.Mapper(command=("cat",)), command_mappers.Command),
    ],
)
def test_each_kind_of_mapper_is_created(
    mapper: filejobs.Mapper, kind: type, out: output_writer.Outputs
) -> None:
    assert isinstance(opened(mapper, out), kind)


@pytest.mark.parametrize(
    ("mapper", "why"),
    [
        (filejobs.Mapper(), "the mapper names nothing"),
        (filejobs.Mapper(builtin="upper"), "no built-in mapper 'upper': use one of calculator"),
    ],
)
def test_spec_without_mapper_is_refused(
    mapper: filejobs.Mapper, why: str, out: output_writer.Outputs
) -> None:
    with pytest.raises(errors.MapperUnusable, match=why):
        opened(mapper, out)
