"""Function mappers: Python functions that are called with a record, or with a list of records.

Used by `mapper_factory`. The rules for arguments and results are in docs/reference/mappers.md. User
code is called through `sdk.function_runner`, so that a task which is asked to stop is interrupted
in user code only.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kilnwork.data import errors as data_errors
from kilnwork.jobs.work import (
    errors,
    mapper_interface,
    output_writer,
    record_errors,
    result_encoding,
)
from kilnwork.sdk import errors as sdk_errors
from kilnwork.sdk import function_runner

Function = Callable[..., Any]

BATCH_BYTES = 64 << 20
"""Size at which a batch is passed to the function although it could have more records."""

_PROPAGATED = (errors.FailPart, sdk_errors.Cancelled, MemoryError)
"""Exceptions that are not caused by the record: they end the attempt."""

_PLAIN = frozenset({dict, list, str, int, float, bool, tuple, bytes})
_NO_SEQUENCE = (str, bytes, bytearray, dict)
_OVER = object()


class PerRecord:
    """A mapper (`mapper_interface.Mapper`) that calls the function with one record at a time."""

    def __init__(
        self,
        function: Function,
        out: output_writer.Outputs,
        *,
        decode: mapper_interface.Decode,
        encode: result_encoding.Encode,
        setting: mapper_interface.MapperSettings,
    ) -> None:
        self._function = function
        self._out = out
        self._decode = decode
        self._encode = encode
        self._setting = setting
        self._record_errors = record_errors.RecordErrors(out, setting.tracebacks)

    def map_batch(self, first: int, batch: list[bytes]) -> None:
        """Map records, as `Mapper.map_batch`."""
        made: list[bytes] = []
        out, on_progress, function, decode = (
            self._out,
            self._setting.on_progress,
            self._function,
            self._decode,
        )
        for number, raw in self._setting.numbered(first, batch, out):
            on_progress(number)
            try:
                value = function_runner.call(function, (decode(raw),), {})
                count = _write(value, made, self._encode)
            except _PROPAGATED:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                self._record_errors.bad(number, error, raw)
                continue
            if count:
                out.succeeded += 1
            else:
                out.skipped += 1
        out.results(made)

    def finish(self) -> None:
        """Do nothing, since all results are in the outputs already."""

    def close(self) -> None:
        """Do nothing, since the mapper holds no resources."""


class _Waiting:
    """Records that wait until their batch is full. In `values`, an exception stands for a record
    that cannot be read.
    """

    __slots__ = ("bad", "bytes", "numbers", "raws", "values")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.raws: list[bytes] = []
        self.values: list[Any] = []
        self.bad: list[int] = []
        self.bytes = 0


class PerBatch:
    """A mapper (`mapper_interface.Mapper`) that calls the function with a list of up to `size`
    records.

    The function returns a list of as many results.
    """

    def __init__(
        self,
        function: Function,
        out: output_writer.Outputs,
        *,
        size: int,
        decode: mapper_interface.Decode,
        encode: result_encoding.Encode,
        setting: mapper_interface.MapperSettings,
    ) -> None:
        self._function = function
        self._out = out
        self._size = size
        self._decode = decode
        self._encode = encode
        self._setting = setting
        self._record_errors = record_errors.RecordErrors(out, setting.tracebacks)
        self._waiting = _Waiting()

    def map_batch(self, first: int, batch: list[bytes]) -> None:
        """Map records, as `Mapper.map_batch`."""
        waiting, decode = self._waiting, self._decode
        for number, raw in self._setting.numbered(first, batch, self._out):
            try:
                waiting.values.append(decode(raw))
            except data_errors.BadRecord as error:
                waiting.bad.append(len(waiting.values))
                waiting.values.append(error)
            waiting.numbers.append(number)
            waiting.raws.append(raw)
            waiting.bytes += len(raw)
            if len(waiting.raws) >= self._size or waiting.bytes >= BATCH_BYTES:
                self._call()
                waiting = self._waiting

    def finish(self) -> None:
        """Map the last batch, as `Mapper.finish`."""
        if self._waiting.raws:
            self._call()

    def close(self) -> None:
        """Do nothing, since the mapper holds no resources."""

    def _call(self) -> None:
        waiting, self._waiting = self._waiting, _Waiting()
        self._setting.on_progress(waiting.numbers[-1])
        out, encode = self._out, self._encode
        made: list[bytes] = []
        succeeded = 0
        found = self._map_batch(waiting)
        for number, raw, value in zip(waiting.numbers, waiting.raws, found, strict=True):
            try:
                if isinstance(value, Exception):
                    raise value
                if _write(value, made, encode):
                    succeeded += 1
                else:
                    out.skipped += 1
            except _PROPAGATED:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a user's function gives
                self._record_errors.bad(number, error, raw)
        out.succeeded += succeeded
        out.results(made)

    def _map_batch(self, waiting: _Waiting) -> list[Any]:
        """Return a result or an exception for each record, including records that cannot be
        read.
        """
        if not waiting.bad:
            return self._map_values(waiting.numbers, waiting.raws, waiting.values)
        bad = dict.fromkeys(waiting.bad)
        good = [at for at in range(len(waiting.raws)) if at not in bad]
        found = iter(
            self._map_values(
                [waiting.numbers[at] for at in good],
                [waiting.raws[at] for at in good],
                [waiting.values[at] for at in good],
            )
        )
        return [value if at in bad else next(found) for at, value in enumerate(waiting.values)]

    def _map_values(self, numbers: list[int], raws: list[bytes], values: list[Any]) -> list[Any]:
        """Return a result or an exception for each record.

        If the call for the whole batch raises, its records are mapped one by one, and decoded again
        in case the function has changed them.
        """
        if not values:
            return []
        try:
            return self._call_batch(values)
        except _PROPAGATED:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            if len(values) == 1:
                return [error]
        found: list[Any] = []
        for number, raw in zip(numbers, raws, strict=True):
            self._setting.on_progress(number)
            try:
                found += self._call_batch([self._decode(raw)])
            except _PROPAGATED:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                found.append(error)
        return found

    def _call_batch(self, values: list[Any]) -> list[Any]:
        count = len(values)
        returned = function_runner.call(self._function, (values,), {})
        if returned is None:
            return [None] * count
        if isinstance(returned, _NO_SEQUENCE) or not hasattr(returned, "__iter__"):
            raise errors.BadResult(
                f"the function of a batch of {count} returned a {type(returned).__name__}: return "
                "a list with a result for each record"
            )
        found = list(_iterate(returned))
        if len(found) != count:
            raise errors.BadResult(
                f"the function of a batch of {count} gave {len(found)} results: give one for each "
                "record, None for none, an iterator for several"
            )
        return found


def _write(value: Any, made: list[bytes], encode: result_encoding.Encode) -> int:
    """Append all lines of one record's result, or none of them; return the number of lines."""
    if value is None:
        return 0
    if type(value) not in _PLAIN and _is_iterator(value):
        lines = [encode(each) for each in _iterate(value) if each is not None]
        made += lines
        return len(lines)
    made.append(encode(value))
    return 1


def lines_of(function: Function, given: Any, encode: result_encoding.Encode) -> Iterator[bytes]:
    """Yield the lines, without line ends, of the values that a function returns for its only
    argument.
    """
    value = function_runner.call(function, (given,), {})
    if value is None:
        return
    several = type(value) not in _PLAIN and _is_iterator(value)
    for each in _iterate(value) if several else (value,):
        if each is not None:
            yield encode(each)


def _is_iterator(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__next__") or hasattr(kind, "__anext__")


def _iterate(values: Any) -> Iterator[Any]:
    """Yield the items of an iterable made by user code, which may be interrupted while it runs."""
    source = function_runner.iterate(lambda: values, (), {})
    while (value := function_runner.call(next, (source, _OVER), {})) is not _OVER:
        yield value
