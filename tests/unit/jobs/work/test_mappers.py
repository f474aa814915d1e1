"""Selection of the mapper that a job names."""

from collections.abc import Generator
from pathlib import Path

import pytest

from kilnwork.api import filejobs
from kilnwork.data.stores import local
from kilnwork.jobs.work import builtins, commands, errors, functions, mappers, mapping, outputs
from kilnwork.kit import clock


@pytest.fixture
def out(tmp_path: Path) -> outputs.Outputs:
    store = local.LocalStore(tmp_path)
    return outputs.Outputs(
        outputs.Sink(store.writer("out"), "out"),
        lambda: outputs.Sink(store.writer("bad"), "bad"),
    )


def _no_records() -> Generator[list[bytes], None, None]:
    yield []


def opened(mapper: filejobs.Mapper, out: outputs.Outputs) -> mapping.Mapper:
    settings = mapping.MapperSettings(
        filejobs.InputSpec(), first_line=1, on_progress=lambda number: None
    )
    context = mappers.MapperContext(settings, None, _no_records, {}, clock.SystemClock())
    made = mappers.open_mapper(mapper, out, context)
    made.close()
    return made


@pytest.mark.parametrize(
    ("mapper", "kind"),
    [
        (filejobs.Mapper(builtin="identity"), builtins.Builtin),
        (filejobs.Mapper(function="json:dumps"), functions.PerRecord),
        (filejobs.Mapper(function="json:dumps", batch_records=2), functions.PerBatch),
        (filejobs.Mapper(command=("cat",)), commands.Command),
    ],
)
def test_each_kind_of_mapper_is_created(
    mapper: filejobs.Mapper, kind: type, out: outputs.Outputs
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
    mapper: filejobs.Mapper, why: str, out: outputs.Outputs
) -> None:
    with pytest.raises(errors.MapperUnusable, match=why):
        opened(mapper, out)
