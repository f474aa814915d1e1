"""Errors of work on a part: one class for each way in which callers react.

A record that cannot be read is `kilnwork.data.errors.BadRecord`.
"""

from kilnwork.kit import errors


class WorkError(errors.KilnError):
    """A part could not be mapped, or results could not be merged."""


class BadResult(WorkError):
    """The result of a record cannot be written. The record is reported as bad, and the next records
    are mapped.
    """


class RecordsRefused(WorkError):
    """A record is bad, and the job allows no bad records (`badRecords: fail`).

    `input`: whether the record itself is bad, so that a retry would not help.
    """

    def __init__(self, message: str | None = None, *, input_: bool = False) -> None:
        super().__init__(message)
        self.input = input_


class FailPart(WorkError):
    """Raise this in a mapper if the cause is not the record, for example because a database is
    unavailable.

    The part is retried, as the job's `retry` says, and no record is reported.
    """


class MapperUnusable(WorkError):
    """The mapper cannot be found or called; the message says what to change."""


class CommandFailed(WorkError):
    """A command did not read all its input, did not exit with code 0, left its stdout open in
    another process, or reported bad records in a way that cannot be used."""
