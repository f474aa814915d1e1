"""Mappers of file jobs: built-in mappers, Python functions and programs.

Used by `upload` for `--mapper`, `--reducer` and programs. A function in a file is uploaded with its
file, and with the directory of `--working-dir`, in the way in which `kiln.connect(modules=…)` ships
code: by digest, unpacked once by each worker. The code is not imported here. For a function in a
module, another process checks whether workers on this machine can import it; for workers in a
cluster this is not known here.
"""

import ast
import asyncio
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kilnwork.api import filejobs
from kilnwork.cli import errors, packed_code, session
from kilnwork.endpoints import discovery_protocol, resolve

BUILT_IN = {"mapper": ("calculator", "identity"), "reducer": ("identity",)}

FORMS = (
    "write --mapper calculator (the built-in sample), --mapper package.module:function (which the "
    "workers can import), --mapper path/to/file.py:function (sent along), or a program after --"
)


@dataclass(frozen=True, slots=True)
class RequestedMapper:
    """A mapper as the user named it. `file`: the file with the function, which is uploaded."""

    mapper: filejobs.Mapper
    file: Path | None = None


def parse(
    text: str | None, command: str | Sequence[str], *, batch: int | None, of: str
) -> RequestedMapper:
    """Return the mapper that `--mapper` or `--command` names.

    `of`: "mapper" or "reducer", for messages. Raises `errors.InvalidInput` with the allowed forms.
    """
    words = tuple(_words(command, of) if isinstance(command, str) else command)
    if text and words:
        raise errors.InvalidInput(f"one {of} is enough: name a function or a program, not both")
    if words:
        if batch is not None:
            raise errors.InvalidInput(
                "--batch is for Python functions: a program reads all records of its part"
            )
        return RequestedMapper(filejobs.Mapper(command=words))
    if not text:
        raise errors.InvalidInput(f"what shall be done with the records? {FORMS}")
    if text in BUILT_IN[of]:
        if batch is not None:
            raise errors.InvalidInput(f"--batch is for Python functions: {text} is built in")
        return RequestedMapper(filejobs.Mapper(builtin=text))
    where, colon, name = text.rpartition(":")
    if not colon and text.endswith(".py"):
        raise errors.InvalidInput(f"--{of} {text}: name the function: --{of} {text}:FUNCTION")
    if not colon or not where or not all(part.isidentifier() for part in name.split(".")):
        raise errors.InvalidInput(f"--{of} {text}: {FORMS.replace('--mapper', f'--{of}')}")
    if not where.endswith(".py"):
        if not all(part.isidentifier() for part in where.split(".")):
            raise errors.InvalidInput(
                f"--{of} {text}: {where!r} is not a module; a file ends with .py, a module is "
                "written with dots"
            )
        return RequestedMapper(filejobs.Mapper(function=text, batch_records=batch))
    file = Path(where)
    _check_file(file, name, of)
    return RequestedMapper(
        filejobs.Mapper(function=f"{file.stem}:{name}", batch_records=batch), file
    )


def _words(command: str, of: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise errors.InvalidInput(f"the program of the {of} cannot be read: {error}") from error


def _check_file(file: Path, name: str, of: str) -> None:
    """Check that the text of a file defines the function, without importing the file."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except FileNotFoundError as error:
        where = f"there is no file {file.absolute()}"
        raise errors.InvalidInput(f"--{of} {file}:{name}: {where}") from error
    except OSError as error:
        raise errors.InvalidInput(f"--{of} {file}:{name}: {error.strerror or error}") from error
    except (SyntaxError, ValueError) as error:
        raise errors.InvalidInput(f"--{of} {file}:{name}: no Python: {error}") from error
    taken = file.stem in sys.stdlib_module_names
    if taken or not file.stem.isidentifier():
        why = "Python has one of that name" if taken else "no module can be called so"
        raise errors.InvalidInput(
            f"--{of} {file}:{name}: workers import the file as module {file.stem!r}, and {why}: "
            "give the file another name"
        )
    functions = {node.name for node in tree.body if isinstance(node, _DEFINITIONS)}
    bound = {
        found.id
        for node in tree.body
        if not isinstance(node, _DEFINITIONS)
        for found in ast.walk(node)
        if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Store)
    }
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    if name.partition(".")[0] not in functions | bound | imported | {"*"} and "*" not in imported:
        known = ", ".join(sorted(functions)) or "none"
        raise errors.InvalidInput(f"{file} has no function {name!r}; it has: {known}")


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


_TRY = """
import sys
from kilnwork.api import filejobs
from kilnwork.jobs.work import errors, function_import
function, *sys.path[:0] = sys.argv[1:]
try:
    function_import.import_function(filejobs.Mapper(function=function))
except errors.MapperUnusable as error:
    sys.stderr.write(str(error))
    sys.exit(3)
"""
_UNUSABLE = 3
"""Exit code of `_TRY` for a function that no worker can import."""

TRY_S = 30.0
"""Timeout of the import check; the workers report modules that take longer."""


async def check_importable(
    s: session.Session, wanted: Sequence[RequestedMapper], *, working_dir: Path | None
) -> None:
    """Raise `errors.InvalidInput` for a function that workers on this machine cannot import.

    Call it before anything is uploaded.
    """
    functions = [
        each.mapper.function
        for each in wanted
        if each.file is None and each.mapper.function is not None
    ]
    workers = await _local_workers(s) if functions else None
    for function in functions if workers is not None else ():
        problem = await _problem(workers or {}, function, _search_path(working_dir))
        if problem:
            raise errors.InvalidInput(problem)


def _search_path(working_dir: Path | None) -> tuple[str, ...]:
    """Return the directories in which modules are looked up first: the directory to upload."""
    return () if working_dir is None else (str(working_dir.absolute()),)


async def _local_workers(s: session.Session) -> Mapping[str, str] | None:
    """Return the environment of the workers on this machine, or None.

    None unless the server and its workers run on this machine as this user.
    """
    document = await s.carry_out(discovery_protocol.ask_server(s.settings))
    if document is None or resolve.local_socket(s.server, document) is None:
        return None
    found: Mapping[str, str] | None = document.get("workers")
    return found


async def _problem(workers: Mapping[str, str], function: str, path: Sequence[str]) -> str:
    """Return the reason why workers cannot import the function, or "".

    It is "" if they can, or if the check takes too long.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    tried = await asyncio.create_subprocess_exec(
        workers["python"], "-c", _TRY, function, *path,
        cwd=workers["directory"],
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(TRY_S):
            _, stderr = await tried.communicate()
    except TimeoutError:
        tried.kill()
        await tried.wait()
        return ""
    return stderr.decode(errors="replace") if tried.returncode == _UNUSABLE else ""


async def upload_mappers(
    s: session.Session, wanted: Sequence[RequestedMapper], *, working_dir: Path | None
) -> list[filejobs.Mapper]:
    """Upload the files of mappers and return the mappers for the spec of the file job.

    Raises `errors.InvalidInput` for a directory that cannot be uploaded, or a KubeError.
    """
    files = list(dict.fromkeys(each.file for each in wanted if each.file is not None))
    if not files and working_dir is None:
        return [each.mapper for each in wanted]
    packed = await asyncio.to_thread(packed_code.pack, working_dir, files=files)
    await packed_code.upload(s, packed)
    return [
        each.mapper if each.mapper.builtin is not None else _in(each.mapper, packed.digest)
        for each in wanted
    ]


def _in(mapper: filejobs.Mapper, digest: str) -> filejobs.Mapper:
    return filejobs.Mapper(
        function=mapper.function,
        command=mapper.command,
        batch_records=mapper.batch_records,
        environment=digest,
    )
