"""Built-in mappers, which need no code: `calculator` and `identity`. Used by `mapper_factory`."""

from collections.abc import Callable

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import values
from kilnwork.jobs.work import calculator, mapper_interface, output_writer, result_encoding

LineMaker = Callable[[bytes], bytes]

NAMES = ("calculator", "identity")


def line_maker(
    name: str, spec: filejobs.InputSpec, header: tuple[str, ...] | None
) -> LineMaker | None:
    """Return a function that makes a result line from a record, or None if there is no built-in
    mapper of that name.

    The function raises `BadRecord`.
    """
    rows = spec.format is filejobs.Format.CSV
    decode = values.decoder(spec, header)
    encode = result_encoding.encoder(text=False)
    if name == "identity":
        return (lambda raw: encode(decode(raw))) if rows else bytes
    if name == "calculator":
        if rows:
            return lambda raw: calculator.calculate(encode(decode(raw)))
        return calculator.calculate
    return None


class Builtin:
    """Mapper that calls a function from record to result line (`mapper_interface.Mapper`)."""

    def __init__(
        self,
        make: LineMaker,
        out: output_writer.Outputs,
        *,
        setting: mapper_interface.MapperSettings,
    ) -> None:
        self._make = make
        self._out = out
        self._setting = setting

    def map_batch(self, first: int, batch: list[bytes]) -> None:
        """Map records, as `Mapper.map_batch`."""
        self._setting.on_progress(first)
        if self._make is calculator.calculate:
            self._calculate(first, batch)
            return
        if self._make is bytes and self._setting.none_blank(batch):
            self._out.succeeded += len(batch)
            self._out.results(batch)
            return
        made: list[bytes] = []
        make, out = self._make, self._out
        for number, raw in self._setting.numbered(first, batch, out):
            try:
                made.append(make(raw))
            except errors.BadRecord as error:
                out.bad(number, str(error), raw, input_=True)
        out.succeeded += len(made)
        out.results(made)

    def _calculate(self, first: int, batch: list[bytes]) -> None:
        """Map records with the calculator, without checking for blank lines: a blank line is not
        JSON, and so is noticed when it is decoded."""
        made: list[bytes] = []
        make, append, out = self._make, made.append, self._out
        lost = 0
        for raw in batch:
            try:
                append(make(raw))
            except errors.BadRecord as error:
                number = first + len(made) + lost
                lost += 1
                if self._setting.skips(raw):
                    out.skipped += 1
                else:
                    out.bad(number, str(error), raw, input_=True)
        out.succeeded += len(made)
        out.results(made)

    def finish(self) -> None:
        """Do nothing, since all results are in the outputs already."""

    def close(self) -> None:
        """Do nothing, since the mapper holds no resources."""
