"""Kilnwork: dynamic batch work on Kubernetes, in Python.

The public door. It stays free of imports so that `import kilnwork` and the command line start in
milliseconds; what users reach for is loaded on first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kilnwork.version import __version__

if TYPE_CHECKING:
    from kilnwork.sdk.errors import (
        BadOption,
        Cancelled,
        DispatcherLost,
        InputFailed,
        KeyTaken,
        KilnError,
        NoSession,
        NotInTask,
        NotPicklable,
        RemoteTraceback,
        TaskError,
        TaskFailed,
        TaskLost,
        TaskTimedOut,
    )

_HOMES = {
    "kilnwork.sdk.errors": (
        "BadOption",
        "Cancelled",
        "DispatcherLost",
        "InputFailed",
        "KeyTaken",
        "KilnError",
        "NoSession",
        "NotInTask",
        "NotPicklable",
        "RemoteTraceback",
        "TaskError",
        "TaskFailed",
        "TaskLost",
        "TaskTimedOut",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BadOption",
    "Cancelled",
    "DispatcherLost",
    "InputFailed",
    "KeyTaken",
    "KilnError",
    "NoSession",
    "NotInTask",
    "NotPicklable",
    "RemoteTraceback",
    "TaskError",
    "TaskFailed",
    "TaskLost",
    "TaskTimedOut",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
