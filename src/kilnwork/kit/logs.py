"""Set-up of logging: one line per record, with a constant message and facts as fields.

Used by the entry points of processes only. Records go to standard error, as text for people or as
one JSON object per line. They never contain a payload or a secret: callers pass names, ids and
numbers in `extra=`.
"""

import json
import logging
import sys

from kilnwork.kit import clock

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {k}={v}" for k, v in _facts(record).items())
        time = clock.rfc3339_micro(record.created)
        line = f"{time} {record.levelname.lower()} {record.name} {record.getMessage()}{facts}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": clock.rfc3339_micro(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {k: v for k, v in record.__dict__.items() if k not in _STANDARD}


def setup(*, level: str = "info", as_json: bool = False) -> None:
    """Configure logging to standard error at `level` and above; repeatable."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
