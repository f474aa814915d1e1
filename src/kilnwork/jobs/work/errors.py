"""What can go wrong with the work on a part: one class per reaction.

A record that cannot be read is `kilnwork.data.errors.BadRecord`.
"""

from kilnwork.kit import errors


class WorkError(errors.KilnError):
    """A part could not be mapped, or results not be merged."""


class BadResult(WorkError):
    """What the mapper made of a record cannot be written: it is reported, the others go on."""


class RecordsRefused(WorkError):
    """A record is bad, and the job takes no bad records (`badRecords: fail`).

    `input`: the record itself is bad, so that trying again is of no use.
    """

    def __init__(self, message: str | None = None, *, input_: bool = False) -> None:
        super().__init__(message)
        self.input = input_


class FailPart(WorkError):
    """Raise it in a mapper when not the record is at fault, say because a database is away.

    The part is tried again, as the job's `retry` says, and no record is reported.
    """


class MapperUnusable(WorkError):
    """The mapper cannot be found or called; the message says what to change."""


class CommandFailed(WorkError):
    """A command must read all its input and end with exit code 0; this one did not."""
