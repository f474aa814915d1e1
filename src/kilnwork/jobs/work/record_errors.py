"""Reporting of bad records: the reason, and where in the user's code the error arose. Used by
`function_mappers`.
"""

from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType

from kilnwork.data import errors as data_errors
from kilnwork.jobs.work import errors, output_writer
from kilnwork.sdk import context

_OURS = "kilnwork."


class RecordErrors:
    """Reporter of bad records, which logs the tracebacks of the first `tracebacks` records."""

    def __init__(self, out: output_writer.Outputs, tracebacks: int) -> None:
        self._out = out
        self._left = tracebacks

    def bad(self, number: int, error: Exception, raw: bytes) -> None:
        """Report a bad record. Raises as `Outputs.bad`."""
        of_input = isinstance(error, data_errors.BadRecord)
        if self._left and not isinstance(error, data_errors.BadRecord | errors.BadResult):
            self._left -= 1
            raised = type(error), error, _user_traceback(error.__traceback__)
            context.context().logger.warning("line %d is bad", number, exc_info=raised)
        self._out.bad(number, reason(error), raw, input_=of_input)


def reason(error: Exception) -> str:
    """Return the text of an exception, such as `KeyError: 'price' (prices.py:12)`."""
    if isinstance(error, data_errors.BadRecord | errors.BadResult):
        return str(error)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__
        text = ""
    name = type(error).__name__
    return (f"{name}: {text}" if text else name) + _error_place(error.__traceback__)


def _error_place(tb: TracebackType | None) -> str:
    """Return the place of an error: the innermost line in the file of the user's function, rather
    than in a library.
    """
    theirs = list(_frames(_user_traceback(tb)))
    if not theirs:
        return ""
    path = theirs[0].tb_frame.f_code.co_filename
    last = [frame for frame in theirs if frame.tb_frame.f_code.co_filename == path][-1]
    return f" ({PurePath(path).name}:{last.tb_lineno})"


def _user_traceback(tb: TracebackType | None) -> TracebackType | None:
    """Return the part of the traceback that begins at the user's function."""
    while tb is not None and str(tb.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        tb = tb.tb_next
    return tb


def _frames(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next
