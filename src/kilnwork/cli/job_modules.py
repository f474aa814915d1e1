"""Lookup of the jobs that a Python module declares, by importing it in the way of workers.

Used by the command `deploy`. Workers import a module by its name; a file, or the package that
contains it, is uploaded. Errors in the module are reported with file and line. Not for mappers
(`mappers`), which only workers import.
"""

import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kilnwork.api import names
from kilnwork.cli import errors, packed_code
from kilnwork.kit import errors as kit_errors
from kilnwork.sdk import job_functions, job_manifests

FORMS = "write package.module, or path/to/file.py"


class DeclaredJobs(NamedTuple):
    """The JobConfigs that a module declares, sorted by name, with the name of the module.

    `code`: the code to upload, or None if workers import the module by its name.
    """

    module: str
    bodies: list[dict[str, Any]]
    code: packed_code.PackedCode | None = None


def load_module(
    text: str,
    *,
    labels: Mapping[str, str],
    working_dir: Path | None = None,
    may_be_empty: bool = False,
) -> DeclaredJobs:
    """Return the JobConfigs that a module or file declares.

    `labels`: further labels for them. `working_dir`: a directory to upload. `may_be_empty`: whether
    a module without jobs is accepted. Raises `errors.InvalidInput` with the file and line of a
    problem.
    """
    directory, name = _locate(text, working_dir)
    module = _imported(text, directory, name)
    if _is_file(text):
        _check_file(module, Path(text).absolute(), name)
    found = _jobs(module)
    if not found and not may_be_empty:
        raise errors.InvalidInput(
            f"{text} declares no jobs: decorate a function of {name} with @kiln.job(…)"
        )
    label = deployed_from(name)
    bodies = []
    for job in found:
        try:
            body = job.manifest()
        except kit_errors.KilnError as error:
            raise errors.InvalidInput(str(error)) from error
        body["metadata"]["labels"] = {**labels, job_manifests.DEPLOYED_FROM: label}
        bodies.append(body)
    code = _packed(text, name, working_dir)
    if code is not None:
        for body in bodies:
            _name_code(body, code.digest)
    return DeclaredJobs(name, bodies, code)


def _packed(text: str, name: str, working_dir: Path | None) -> packed_code.PackedCode | None:
    if not _is_file(text):
        return None if working_dir is None else packed_code.pack(working_dir)
    path = Path(text).absolute()
    if working_dir is not None and path.is_relative_to(working_dir.absolute()):
        return packed_code.pack(working_dir)
    if "." in name or path.stem == "__init__":
        return packed_code.pack(working_dir, modules=[name])
    return packed_code.pack(working_dir, files=[path])


def _name_code(body: dict[str, Any], digest: str) -> None:
    """Set the digest of the blob that contains the functions of a JobConfig."""
    template = body["spec"]["template"]["spec"]
    others = [*template.get("hooks", ()), template.get("finalizer") or {}]
    for one in (template["taskTemplate"], *(other.get("taskTemplate") or {} for other in others)):
        if "call" in one:
            one["call"]["environment"] = digest


def deployed_from(module: str) -> str:
    """Return the value of the label that marks the JobConfigs of a module."""
    return module if names.label_value_problem(module) is None else names.dns_label(module)


def _is_file(text: str) -> bool:
    return text.endswith(".py") or "/" in text


def _locate(text: str, working_dir: Path | None) -> tuple[Path, str]:
    """Return the directory to import from, and the name of the module."""
    if not _is_file(text):
        if not all(part.isidentifier() for part in text.split(".")):
            raise errors.InvalidInput(f"{text}: {text!r} is not a module: {FORMS}")
        return Path.cwd() if working_dir is None else working_dir.absolute(), text
    path = Path(text).absolute()
    if not path.is_file():
        raise errors.InvalidInput(f"{text}: there is no such file: {FORMS}")
    parts = [path.stem]
    directory = path.parent
    while (directory / "__init__.py").is_file():
        parts.insert(0, directory.name)
        directory = directory.parent
    if parts[-1] == "__init__":
        parts.pop()
    name = ".".join(parts)
    if not all(part.isidentifier() for part in parts) or parts[0] in sys.stdlib_module_names:
        raise errors.InvalidInput(
            f"{text}: workers import it as module {name!r}, which is no name for one, or that of a "
            "module of Python: give the file another name"
        )
    return directory, name


def _imported(text: str, directory: Path, name: str) -> ModuleType:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    # Cached bytecode would hide a change of the file within the same second and to the same size.
    sys.dont_write_bytecode = True
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise errors.InvalidInput(
                f"{text}: there is no module {error.name!r} in {directory}, and none is installed: "
                f"{FORMS}"
            ) from error
        raise errors.InvalidInput(_describe_error(error)) from error
    except SyntaxError as error:
        raise errors.InvalidInput(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except kit_errors.KilnError as error:  # the text names the place
        raise errors.InvalidInput(str(error)) from error
    except (Exception, SystemExit) as error:
        raise errors.InvalidInput(_describe_error(error)) from error


def _check_file(module: ModuleType, path: Path, name: str) -> None:
    """Raise an error if an import by the name of the file yields a different module."""
    found = module.__file__
    if found is None or not Path(found).samefile(path):
        raise errors.InvalidInput(
            f"{path}: workers import it as module {name!r}, and {found} has that name: give the "
            "file another one"
        )


def _describe_error(error: BaseException) -> str:
    """Return a sentence about an exception of an imported module, with its file and line."""
    others = ("<", str(Path(importlib.__file__).parent), str(Path(__file__).parents[1]))
    frames = traceback.extract_tb(error.__traceback__)
    user = [one for one in frames if not one.filename.startswith(others)]
    place = f"{user[-1].filename}:{user[-1].lineno}: " if user else ""
    return f"{place}{type(error).__name__}: {error}"


def _jobs(module: ModuleType) -> Sequence[job_functions.JobFunction[..., Any]]:
    """Return the jobs of a module, including those imported from its submodules, sorted by name."""
    found: dict[str, job_functions.JobFunction[..., Any]] = {}
    for value in vars(module).values():
        if not isinstance(value, job_functions.JobFunction) or not _is_below(value, module):
            continue
        other = found.setdefault(value.name, value)
        if other is not value:
            raise errors.InvalidInput(
                f"{value.location}: job {value.name!r} is declared at {other.location} too: give "
                "one of them another name="
            )
    return [found[name] for name in sorted(found)]


def _is_below(job: job_functions.JobFunction[..., Any], module: ModuleType) -> bool:
    return f"{job.__module__}.".startswith(f"{module.__name__}.")
