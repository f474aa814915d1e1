"""Command mappers: programs that read records on stdin, one per line, and print results on stdout,
line by line.

Used by `mapper_factory`; `environment` and `CommandOutput` also for reducers. The rules for
commands are in docs/reference/mappers.md. The unit of work is the part: it is not known which
results belong to which record. A record is bad only if the command reports it, on file descriptor
3, by its number on stdin. The reports are kept until the command has ended; then the part is read
again for the content of the bad records.
"""

import bisect
import os
from array import array
from collections.abc import Callable, Generator, Mapping

from kilnwork.data import errors as data_errors
from kilnwork.jobs.work import errors, mapper_interface, output_writer, pipes, result_encoding
from kilnwork.kit import clock as clocks
from kilnwork.sdk import errors as sdk_errors
from kilnwork.sdk import session_stack

MAX_REPORT_BYTES = 64 << 20
"""Maximum size in bytes of the reasons kept while the command runs."""

MAX_LINE = 1 << 16
"""Maximum size in bytes of one report."""

Reread = Callable[[], Generator[list[bytes], None, None]]


def environment(job: str, *, part: int, run: int, attempt: int) -> dict[str, str]:
    """Return the environment of a command: the variables with which the slot began, and the
    variables of the part.

    Changes that functions have made to the slot's environment since then are not included.
    """
    try:
        inherited: Mapping[str, str] = session_stack.innermost().inherited
    except sdk_errors.NoSession:
        inherited = os.environ
    return {
        **inherited,
        "KILN_JOB": job,
        "KILN_PART": str(part),
        "KILN_RUN": str(run),
        "KILN_ATTEMPT": str(attempt),
    }


class Command:
    """A mapper (`mapper_interface.Mapper`) that runs a command.

    `decode`: decoder for records that are not lines (CSV), which are passed as JSON; else None.
    `reread` yields the records of the part again, from the first.
    """

    def __init__(  # noqa: PLR0913 - each of another kind
        self,
        command: tuple[str, ...],
        out: output_writer.Outputs,
        *,
        variables: Mapping[str, str],
        decode: mapper_interface.Decode | None,
        setting: mapper_interface.MapperSettings,
        reread: Reread,
        clock: clocks.Clock,
    ) -> None:
        self._out = out
        self._decode = decode
        self._encode = result_encoding.encoder(text=False)
        self._setting = setting
        self._reread = reread
        self._output = CommandOutput(out.printed)
        self._passed_numbers = _PassedNumbers()
        self._refused: dict[int, str] = {}
        self._next = 0
        given = {**variables, "KILN_BAD_RECORDS": f"/dev/fd/{pipes.REPORTS}"}
        self._running = pipes.Piped(command, given, self._output, clock=clock, check=self._check)

    def map_batch(self, first: int, batch: list[bytes]) -> None:
        """Write records to the command, as `Mapper.map_batch`."""
        self._next = first
        if self._decode is None and self._setting.none_blank(batch):
            self._passed_numbers.add(first, len(batch))
            self._running.write(b"\n".join(batch) + b"\n")
            return
        fed: list[bytes] = []
        for number, raw in self._setting.numbered(first, batch, self._out):
            try:
                fed.append(raw if self._decode is None else self._encode(self._decode(raw)))
            except data_errors.BadRecord as error:
                self._refused[number] = str(error)
                continue
            self._passed_numbers.add(number, 1)
        if fed:
            self._running.write(b"\n".join(fed) + b"\n")

    def finish(self) -> None:
        """Wait until the command has ended, as `Mapper.finish`."""
        self._running.finish()
        self._output.finish()
        reports = self._output.bad
        bad = self._refused | {self._passed_numbers.number(at): why for at, why in reports.items()}
        self._out.succeeded += self._passed_numbers.count - len(reports)
        if bad:
            self._report(bad)

    def close(self) -> None:
        """End the command and all processes that it started, as `Mapper.close`."""
        self._running.close()

    def _check(self) -> None:
        self._setting.on_progress(self._next)

    def _report(self, bad: dict[int, str]) -> None:
        """Report bad records with their content, for which the part is read again."""
        number = self._setting.first_line
        for batch in self._reread():
            for at, raw in enumerate(batch, number):
                if at in bad:
                    self._out.bad(at, bad[at], raw, input_=at in self._refused)
            number += len(batch)


class CommandOutput:
    """Receiver of the output and the reports of a command (`pipes.Receiver`).

    `bad`: reason of each bad record, by number of the record on stdin.
    """

    def __init__(self, printed: Callable[[bytes], None]) -> None:
        self._pass_on = printed
        self._last = b"\n"
        self._begun = b""
        self._kept_bytes = 0
        self.bad: dict[int, str] = {}

    def printed(self, data: bytes) -> None:
        """Pass data from stdout on to the outputs, as `Receiver.printed`."""
        self._pass_on(data)
        self._last = data[-1:]

    def reported(self, data: bytes) -> None:
        """Parse reports, as `Receiver.reported`."""
        *whole, self._begun = (self._begun + data).split(b"\n")
        for line in whole:
            self._keep(line)
        if len(self._begun) > MAX_LINE:
            raise errors.CommandFailed(
                f"a line of more than {MAX_LINE} bytes came on descriptor {pipes.REPORTS}: write "
                "NUMBER REASON for a bad record, one a line"
            )

    def finish(self) -> None:
        """Complete the last line of results and the last report, once the command has ended."""
        if self._last != b"\n":
            self._pass_on(b"\n")
        if self._begun:
            self._keep(self._begun)

    def _keep(self, line: bytes) -> None:
        first, _, reason = line.partition(b" ")
        if not first.isdigit() or int(first) < 1:
            raise errors.CommandFailed(
                f"{line[:80].decode(errors='replace')!r} on descriptor {pipes.REPORTS} is no "
                "report of a bad record: write its number on stdin, from 1, a space and the reason"
            )
        why = reason.decode(errors="replace").strip()[: output_writer.MAX_REASON]
        self.bad.setdefault(int(first), why or "refused by the command")
        self._kept_bytes += len(line) + 100
        if self._kept_bytes > MAX_REPORT_BYTES:
            raise errors.CommandFailed(
                f"the command has reported {len(self.bad)} bad records of one part, more than are "
                "kept: make parts smaller (itemsPerPart)"
            )


class _PassedNumbers:
    """Numbers of the records that were passed to a command, in order, stored as runs of consecutive
    numbers."""

    def __init__(self) -> None:
        self.count = 0
        self._starts = array("q")
        self._counts = array("q")
        """`_starts`: number of the first record of each run; `_counts`: how many records were
        passed before the run."""
        self._next = -1

    def add(self, number: int, count: int) -> None:
        """Record that `count` records from number `number` on were passed to the command."""
        if number != self._next:
            self._starts.append(number)
            self._counts.append(self.count)
        self._next = number + count
        self.count += count

    def number(self, at: int) -> int:
        """Return the number of the record that was passed as the `at`th, counted from 1. Raises
        `CommandFailed`."""
        if at > self.count:
            raise errors.CommandFailed(
                f"the command reported record {at} as bad, but it was given {self.count}: count "
                "the lines of stdin, from 1"
            )
        run = bisect.bisect_right(self._counts, at - 1) - 1
        return self._starts[run] + at - 1 - self._counts[run]
