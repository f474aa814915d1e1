"""Finding the jobs that a module declares: the module is imported, as the workers will import it.

Used by the command `deploy`. What goes wrong in the module is said with its file and line. Not for
mappers (`mappers`), whose files are sent along and imported by workers only.
"""

import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kilnwork.api import names
from kilnwork.cli import errors
from kilnwork.kit import errors as kit_errors
from kilnwork.sdk import job_functions, job_manifests

FORMS = "write package.module, or path/to/file.py"


class Declared(NamedTuple):
    """What a module declares: its name, and its JobConfigs in the order of their names."""

    module: str
    bodies: list[dict[str, Any]]


def declared(text: str, *, labels: Mapping[str, str]) -> Declared:
    """Return the JobConfigs of a module or file. `labels`: more labels of theirs.

    Raises `errors.Unusable` with the file and line of what is wrong.
    """
    folder, name = _located(text)
    module = _imported(text, folder, name)
    found = _jobs(module)
    if not found:
        raise errors.Unusable(
            f"{text} declares no jobs: write @kiln.job(…) above a function of {name}"
        )
    label = deployed_from(name)
    bodies = []
    for job in found:
        try:
            body = job.manifest()
        except kit_errors.KilnError as error:
            raise errors.Unusable(str(error)) from error
        body["metadata"]["labels"] = {**labels, job_manifests.DEPLOYED_FROM: label}
        bodies.append(body)
    return Declared(name, bodies)


def deployed_from(module: str) -> str:
    """Return the value of the label of what was deployed from a module."""
    return module if names.label_value_problem(module) is None else names.dns_label(module)


def _located(text: str) -> tuple[Path, str]:
    """The folder to import from, and the name of the module."""
    if not text.endswith(".py") and "/" not in text:
        if not all(part.isidentifier() for part in text.split(".")):
            raise errors.Unusable(f"{text}: {text!r} is no module: {FORMS}")
        return Path.cwd(), text
    path = Path(text).absolute()
    if not path.is_file():
        raise errors.Unusable(f"{text}: there is no such file: {FORMS}")
    parts = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if parts[-1] == "__init__":
        parts.pop()
    name = ".".join(parts)
    if not all(part.isidentifier() for part in parts) or parts[0] in sys.stdlib_module_names:
        raise errors.Unusable(
            f"{text}: workers import it as module {name!r}, which is no name for one, or that of a "
            "module of Python: give the file another name"
        )
    return folder, name


def _imported(text: str, folder: Path, name: str) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise errors.Unusable(
                f"{text}: there is no module {error.name!r} in {folder}, and none is installed: "
                f"{FORMS}"
            ) from error
        raise errors.Unusable(_sentence(error)) from error
    except SyntaxError as error:
        raise errors.Unusable(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except kit_errors.KilnError as error:  # says where by itself
        raise errors.Unusable(str(error)) from error
    except (Exception, SystemExit) as error:
        raise errors.Unusable(_sentence(error)) from error


def _sentence(error: BaseException) -> str:
    """What was raised while a module was imported, with the file and line of the module."""
    others = ("<", str(Path(importlib.__file__).parent), str(Path(__file__).parents[1]))
    frames = traceback.extract_tb(error.__traceback__)
    user = [one for one in frames if not one.filename.startswith(others)]
    place = f"{user[-1].filename}:{user[-1].lineno}: " if user else ""
    return f"{place}{type(error).__name__}: {error}"


def _jobs(module: ModuleType) -> Sequence[job_functions.JobFunction[..., Any]]:
    """The jobs of a module, those imported from its own submodules too, in the order of names."""
    found: dict[str, job_functions.JobFunction[..., Any]] = {}
    for value in vars(module).values():
        if not isinstance(value, job_functions.JobFunction) or not _is_below(value, module):
            continue
        other = found.setdefault(value.name, value)
        if other is not value:
            raise errors.Unusable(
                f"{value.location}: job {value.name!r} is declared at {other.location} too: give "
                "one of them another name="
            )
    return [found[name] for name in sorted(found)]


def _is_below(job: job_functions.JobFunction[..., Any], module: ModuleType) -> bool:
    return f"{job.__module__}.".startswith(f"{module.__name__}.")
