"""What every mapper is: something that takes the records of a part in order.

Used by `part`, which feeds one, and by the mappers: `builtins`, `functions`, `commands`. The result
of a part must depend on its records alone, not on how they come.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kilnwork.api import filejobs
from kilnwork.data.records import lines
from kilnwork.jobs.work import outputs

Decode = Callable[[bytes], Any]
"""Makes a value of a record, raises `BadRecord`: `kilnwork.data.records.values`."""

TRACEBACKS = 3
"""Of the first bad records of a part; their reasons say already where it was."""


class Mapper(Protocol):
    """Takes records, fills `Outputs`. Raises whatever ends the attempt. Used by one thread."""

    def take(self, first: int, batch: list[bytes]) -> None:
        """Map records as they are in the file, without line ends; `first`: number of the first."""
        ...

    def finish(self) -> None:
        """Put all results into the outputs: there are no more records."""
        ...

    def close(self) -> None:
        """Leave nothing behind; also after an error."""
        ...


class MapperSettings:
    """Settings that mappers share. `first_line`: number of the first record of the part.
    `passed(number)`: called now and then with the record that comes next; raises Cancelled when the
    attempt is to end. `tracebacks`: of so many bad records the task's log gets them."""

    def __init__(
        self,
        spec: filejobs.InputSpec,
        *,
        first_line: int,
        passed: Callable[[int], None],
        tracebacks: int = TRACEBACKS,
    ) -> None:
        self.spec = spec
        self.first_line = first_line
        self.passed = passed
        self.tracebacks = tracebacks
        self._skips = spec.blank is filejobs.Blank.SKIP

    def none_blank(self, batch: list[bytes]) -> bool:
        """Return whether all of these are to be mapped, as they nearly always are."""
        return not self._skips or (all(batch) and not any(map(bytes.isspace, batch)))

    def skips(self, raw: bytes) -> bool:
        """Return whether a record is not to be mapped."""
        return self._skips and lines.is_blank(raw)

    def numbered(
        self, first: int, batch: list[bytes], out: outputs.Outputs
    ) -> Iterable[tuple[int, bytes]]:
        """Return the records that are to be mapped, with their numbers; others are counted as
        skipped."""
        if self.none_blank(batch):
            return enumerate(batch, first)
        found = [
            (number, raw) for number, raw in enumerate(batch, first) if not lines.is_blank(raw)
        ]
        out.skipped += len(batch) - len(found)
        return found
