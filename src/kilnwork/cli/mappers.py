"""What `--mapper` and `--command` mean: a built-in one, a Python function, a file's, a program.

Used by `upload`. A function in a file goes along with its file, and with the folder of
`--working-dir`, as `kiln.connect(modules=…)` ships code: by digest, unpacked once by each worker.
Nothing of it is imported here.
"""

import ast
import asyncio
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kilnwork.api import filejobs
from kilnwork.cli import errors, packed_code, session

BUILT_IN = {"mapper": ("calculator", "identity"), "reducer": ("identity",)}

FORMS = (
    "write --mapper calculator (the built-in sample), --mapper package.module:function (which the "
    "workers can import), --mapper path/to/file.py:function (sent along), or a program after --"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A mapper as it was said. `file`: goes along, and holds the function."""

    mapper: filejobs.Mapper
    file: Path | None = None


def parse(text: str | None, command: str | Sequence[str], *, batch: int | None, of: str) -> Wanted:
    """The mapper of `--mapper` or `--command`; `of`: "mapper" or "reducer", for messages.

    Raises `errors.Unusable` with what can be written.
    """
    words = tuple(_words(command, of) if isinstance(command, str) else command)
    if text and words:
        raise errors.Unusable(f"one {of} is enough: name a function or a program, not both")
    if words:
        if batch is not None:
            raise errors.Unusable(
                "--batch is for Python functions: a program reads all records of its part"
            )
        return Wanted(filejobs.Mapper(command=words))
    if not text:
        raise errors.Unusable(f"what shall be done with the records? {FORMS}")
    if text in BUILT_IN[of]:
        if batch is not None:
            raise errors.Unusable(f"--batch is for Python functions: {text} is built in")
        return Wanted(filejobs.Mapper(builtin=text))
    where, colon, name = text.rpartition(":")
    if not colon and text.endswith(".py"):
        raise errors.Unusable(f"--{of} {text}: say which function of it: --{of} {text}:FUNCTION")
    if not colon or not where or not all(part.isidentifier() for part in name.split(".")):
        raise errors.Unusable(f"--{of} {text}: {FORMS.replace('--mapper', f'--{of}')}")
    if not where.endswith(".py"):
        if not all(part.isidentifier() for part in where.split(".")):
            raise errors.Unusable(
                f"--{of} {text}: {where!r} is no module; a file ends with .py, a module is written "
                "with dots"
            )
        return Wanted(filejobs.Mapper(function=text, batch_records=batch))
    file = Path(where)
    _check_file(file, name, of)
    return Wanted(filejobs.Mapper(function=f"{file.stem}:{name}", batch_records=batch), file)


def _words(command: str, of: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise errors.Unusable(f"the program of the {of} cannot be read: {error}") from error


def _check_file(file: Path, name: str, of: str) -> None:
    """That there is such a function, as far as a look at the text shows it."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except FileNotFoundError as error:
        where = f"there is no file {file.absolute()}"
        raise errors.Unusable(f"--{of} {file}:{name}: {where}") from error
    except OSError as error:
        raise errors.Unusable(f"--{of} {file}:{name}: {error.strerror or error}") from error
    except (SyntaxError, ValueError) as error:
        raise errors.Unusable(f"--{of} {file}:{name}: no Python: {error}") from error
    taken = file.stem in sys.stdlib_module_names
    if taken or not file.stem.isidentifier():
        why = "Python has one of that name" if taken else "no module can be called so"
        raise errors.Unusable(
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
        raise errors.Unusable(f"{file} has no function {name!r}; it has: {known}")


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


async def shipped(
    s: session.Session, wanted: Sequence[Wanted], *, working_dir: Path | None
) -> list[filejobs.Mapper]:
    """The mappers, once the server has the files that they are in.

    Raises `errors.Unusable` for a folder that cannot be sent, or a KubeError.
    """
    files = list(dict.fromkeys(each.file for each in wanted if each.file is not None))
    if not files and working_dir is None:
        return [each.mapper for each in wanted]
    packed = await asyncio.to_thread(packed_code.pack, working_dir, files=files)
    await packed_code.send(s, packed)
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
