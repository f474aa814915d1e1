"""Kilnwork: dynamic batch work on Kubernetes, in Python.

The public API. This module imports nothing, so that `import kilnwork` and the command line start in
milliseconds; public names are loaded on first use (PEP 562).
"""

from importlib import import_module

from kilnwork.version import __version__

TYPE_CHECKING = False  # as `typing.TYPE_CHECKING`; to import that takes as long as to start Python
if TYPE_CHECKING:
    from typing import Any

    from kilnwork import files, testing
    from kilnwork.data.errors import (
        BlobDamaged,
        BlobMissing,
        BlobNotWritten,
        DataError,
        FileChanged,
        NotShippable,
        NotSplittable,
    )
    from kilnwork.data.parts import Part
    from kilnwork.sdk.context import Context, context
    from kilnwork.sdk.decorator import task
    from kilnwork.sdk.errors import (
        BadOption,
        Cancelled,
        ConfigurationError,
        DispatcherLost,
        InputFailed,
        JobFailed,
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
        TooManyFailed,
        VariableMissing,
    )
    from kilnwork.sdk.futures import Future, Futures
    from kilnwork.sdk.job_functions import JobFunction, job
    from kilnwork.sdk.job_runs import DeployedJob, JobRun
    from kilnwork.sdk.local import start
    from kilnwork.sdk.options import SecretKey
    from kilnwork.sdk.remote import connect
    from kilnwork.sdk.session import Session
    from kilnwork.sdk.set_runs import SetRun
    from kilnwork.sdk.snapshots import Shard, Snapshot, outputs
    from kilnwork.sdk.streams import Stream
    from kilnwork.sdk.sync_sets import SyncSet
    from kilnwork.sdk.task import Task
    from kilnwork.sdk.task_lookup import future, retry
    from kilnwork.sdk.templates import TemplateTask, external, function, http, manifest, workflow
    from kilnwork.sdk.values import Ref, get, put, split
    from kilnwork.sdk.waiting import (
        ALL_COMPLETED,
        FIRST_COMPLETED,
        FIRST_EXCEPTION,
        as_completed,
        gather,
        wait,
    )

_HOMES = {
    "kilnwork.data.errors": (
        "BlobDamaged",
        "BlobMissing",
        "BlobNotWritten",
        "DataError",
        "FileChanged",
        "NotShippable",
        "NotSplittable",
    ),
    "kilnwork.data.parts": ("Part",),
    "kilnwork.sdk.context": (
        "Context",
        "context",
    ),
    "kilnwork.sdk.decorator": ("task",),
    "kilnwork.sdk.errors": (
        "BadOption",
        "Cancelled",
        "ConfigurationError",
        "DispatcherLost",
        "InputFailed",
        "JobFailed",
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
        "TooManyFailed",
        "VariableMissing",
    ),
    "kilnwork.sdk.task_lookup": (
        "future",
        "retry",
    ),
    "kilnwork.sdk.futures": (
        "Future",
        "Futures",
    ),
    "kilnwork.sdk.job_functions": (
        "JobFunction",
        "job",
    ),
    "kilnwork.sdk.job_runs": (
        "DeployedJob",
        "JobRun",
    ),
    "kilnwork.sdk.local": ("start",),
    "kilnwork.sdk.options": ("SecretKey",),
    "kilnwork.sdk.remote": ("connect",),
    "kilnwork.sdk.session": ("Session",),
    "kilnwork.sdk.set_runs": ("SetRun",),
    "kilnwork.sdk.snapshots": (
        "Shard",
        "Snapshot",
        "outputs",
    ),
    "kilnwork.sdk.streams": ("Stream",),
    "kilnwork.sdk.sync_sets": ("SyncSet",),
    "kilnwork.sdk.task": ("Task",),
    "kilnwork.sdk.templates": (
        "TemplateTask",
        "external",
        "function",
        "http",
        "manifest",
        "workflow",
    ),
    "kilnwork.sdk.values": (
        "Ref",
        "get",
        "put",
        "split",
    ),
    "kilnwork.sdk.waiting": (
        "ALL_COMPLETED",
        "FIRST_COMPLETED",
        "FIRST_EXCEPTION",
        "as_completed",
        "gather",
        "wait",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "BadOption",
    "BlobDamaged",
    "BlobMissing",
    "BlobNotWritten",
    "Cancelled",
    "ConfigurationError",
    "Context",
    "DataError",
    "DeployedJob",
    "DispatcherLost",
    "FileChanged",
    "Future",
    "Futures",
    "InputFailed",
    "JobFailed",
    "JobFunction",
    "JobRun",
    "KeyTaken",
    "KilnError",
    "NoSession",
    "NotInTask",
    "NotPicklable",
    "NotShippable",
    "NotSplittable",
    "Part",
    "Ref",
    "RemoteTraceback",
    "SecretKey",
    "Session",
    "SetRun",
    "Shard",
    "Snapshot",
    "Stream",
    "SyncSet",
    "Task",
    "TaskError",
    "TaskFailed",
    "TaskLost",
    "TaskTimedOut",
    "TemplateTask",
    "TooManyFailed",
    "VariableMissing",
    "__version__",
    "as_completed",
    "connect",
    "context",
    "external",
    "files",
    "function",
    "future",
    "gather",
    "get",
    "http",
    "job",
    "manifest",
    "outputs",
    "put",
    "retry",
    "split",
    "start",
    "task",
    "testing",
    "wait",
    "workflow",
]


def __getattr__(name: str) -> "Any":
    if name in ("files", "testing"):
        return import_module(f"kilnwork.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
