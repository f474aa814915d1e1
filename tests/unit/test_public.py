"""The names at the public door, and that opening it costs nothing."""

import importlib
import pkgutil

import pytest

import kilnwork
from support import python_subprocess

NAMES = sorted(
    """
ALL_COMPLETED BadOption BlobDamaged BlobMissing BlobNotWritten Cancelled ConfigurationError Context
DataError DeployedJob DispatcherLost FIRST_COMPLETED FIRST_EXCEPTION FileChanged Future Futures
InputFailed JobFailed JobFunction JobRun KeyTaken KilnError NoSession NotInTask NotPicklable
NotShippable NotSplittable Part Ref RemoteTraceback SecretKey Session SetRun Shard Snapshot Stream
SyncSet Task TaskError TaskFailed TaskLost TaskTimedOut TemplateTask TooManyFailed VariableMissing
__version__ as_completed connect context external files function future gather get http job manifest
outputs put retry split start task testing wait workflow
""".split()  # noqa: SIM905 - a list of one name a line is no easier to read
)


def test_these_names_and_no_others_are_public() -> None:
    assert sorted(kilnwork.__all__) == sorted(NAMES)
    assert dir(kilnwork) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_there_and_explains_itself(name: str) -> None:
    found = getattr(kilnwork, name)
    assert name.isupper() or name == "__version__" or found.__doc__


def test_what_is_not_there_is_missed_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'kilnwork' has no attribute 'tusk'"):
        kilnwork.tusk  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("kilnwork.tusk")


def test_no_name_hides_a_room() -> None:
    rooms = {module.name for module in pkgutil.iter_modules(kilnwork.__path__)}
    assert rooms & set(NAMES) == {"files", "testing"}


def test_importing_it_imports_nothing_else() -> None:
    loaded = python_subprocess.run(
        "import sys; before = set(sys.modules); import kilnwork; "
        "print(sorted(m for m in set(sys.modules) - before if 'kilnwork' in m))"
    )
    assert loaded == "['kilnwork', 'kilnwork.version']"


def test_making_tasks_imports_no_event_loop_and_no_server() -> None:
    heavy = (
        "asyncio aiohttp apsw cryptography uvicorn cloudpickle numpy rich click yaml ssl difflib "
        "secrets"
    )
    loaded = python_subprocess.run(
        "import sys, kilnwork as kiln\n"
        "@kiln.task(retries=3)\n"
        "def f(x): return x\n"
        "try: f.submit(1)\n"
        "except kiln.NoSession: pass\n"
        f"print([m for m in {heavy!r}.split() if m in sys.modules])"
    )
    assert loaded == "[]"
