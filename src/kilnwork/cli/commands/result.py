"""`kiln result`: what a task returned or wrote to `$KILN_OUTPUT`.

From the manager, or from the directory of a `kiln.start(directory)`, whether that runs or not.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from kilnwork.api import attempts, task
from kilnwork.cli import completing, downloading, errors, folders, options, session
from kilnwork.data import blobs
from kilnwork.data import errors as data_errors
from kilnwork.dispatch import model
from kilnwork.dispatch.journal.sqlite import queries
from kilnwork.kit import http_types, ids
from kilnwork.server import results

_NAMESPACE = "default"
"""The only one of a directory of `kiln.start`."""


@click.command()
@click.argument("name", metavar="NAME|ID", shell_complete=completing.tasks)
@options.target
@click.option("-o", "--output", default=downloading.STDOUT, metavar="FILE",
              help="Write it there; default standard output.")  # fmt: skip
@click.option("--from", "directory", type=folders.Folder(), metavar="DIRECTORY",
              help="Of a kiln.start(DIRECTORY), whether that runs or not.")  # fmt: skip
def command(name: str, output: str, directory: Path | None) -> None:
    """Bring the result of a task that has succeeded, as the bytes that it is.

    \b
    kiln result hello
    kiln result 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10 -o model.bin
    kiln result 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10 --from runs

    JSON is printed with a line end. Anything else is not printed to a terminal: name a file, or
    pipe it. What a Python function returned is JSON where JSON can say it, else a pickle; loading a
    pickle runs code that its writer chose.

    Ends with 6 when the task failed or was killed.
    """
    downloading.check_target(output)
    if directory is None:
        session.run(lambda s: _from_manager(s, name, output))
    else:
        _from_directory(directory, name, output)


async def _from_manager(s: session.Session, name: str, output: str) -> None:
    """Its state first, so that what it lacks is said in our own words."""
    found = await s.get_json(s.tasks_path(name))
    _check_state(name, found["state"], found.get("message") or found.get("reason", ""))
    if found.get("result") is None:
        click.echo(f"task {name} has no result", err=True)
        return
    media_type = ""

    def head(response: http_types.Response) -> None:
        nonlocal media_type
        media_type = response.headers.get("content-type", "")
        _check_terminal(name, media_type, output)

    pieces = s.stream(s.tasks_path(name, "result"), head=head)
    async with contextlib.aclosing(pieces) as body:
        with _opened(output) as file:
            async for piece in body:
                file.write(piece)
            _end_line(file, media_type)


def _from_directory(directory: Path, name: str, output: str) -> None:
    view = _view(directory, name)
    _check_state(name, view.state, view.message or view.reason)
    payload = results.plain(view.result)
    if payload is None:
        click.echo(f"task {name} has no result", err=True)
        return
    _check_terminal(name, payload.media_type, output)
    with _opened(output) as file:
        if payload.digest is None:
            file.write(payload.data)
        else:
            file.write(_blob(directory, payload.digest))
        _end_line(file, payload.media_type)


def _view(directory: Path, name: str) -> model.TaskView:
    journal = directory / "journal.db"
    if not journal.exists():
        raise errors.Missing(
            f"{directory} has no journal.db: no kiln.start({str(directory)!r}) yet"
        )
    reader = queries.Queries(journal)
    try:
        view = None
        with contextlib.suppress(ValueError):
            view = reader.task(ids.task_id(name))
        view = view or reader.find(_NAMESPACE, name)
    finally:
        reader.close()
    if view is None:
        raise errors.Missing(f"the journal of {directory} has no task {name!r}")
    return view


def _blob(directory: Path, digest: bytes) -> memoryview:
    try:
        return blobs.Blobs(directory / "blobs" / _NAMESPACE, durable=True).get(digest)
    except data_errors.BlobMissing as error:
        raise errors.Missing(f"the result is gone: {error}") from error


def _check_state(name: str, state: str, why: str) -> None:
    if not task.State(state).final:
        hint = f"`kiln wait {name}` waits for its end"
        raise errors.CommandError(f"task {name} is {state} and has no result yet: {hint}")
    if state != task.State.SUCCESS:
        raise errors.TaskFailed(f"task {name} is {state} and has no result: {why}")


def _check_terminal(name: str, media_type: str, output: str) -> None:
    """Bytes that are no text would garble a terminal."""
    if media_type == attempts.JSON or output != downloading.STDOUT or not sys.stdout.isatty():
        return
    what = "a Python pickle" if media_type == attempts.PICKLE else f"of type {media_type}"
    raise errors.Unusable(f"the result of task {name} is {what}: name a file with -o, or pipe it")


@contextlib.contextmanager
def _opened(output: str) -> Iterator[IO[bytes]]:
    if output == downloading.STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with downloading.whole(Path(output)) as file:
            yield file
    except OSError as error:
        raise errors.CommandError(f"{output}: {error.strerror or error}") from error


def _end_line(file: IO[bytes], media_type: str) -> None:
    if file is sys.stdout.buffer and media_type == attempts.JSON:
        file.write(b"\n")
