"""`kiln result`: print or save what a task returned or wrote to `$KILN_OUTPUT`.

Reads from the manager, or from the directory of a `kiln.start(directory)`, whether that runs or
not.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from click.shell_completion import CompletionItem

from kilnwork.api import attempts
from kilnwork.api import kinds as api_kinds
from kilnwork.api import task as api_task
from kilnwork.cli import (
    directory_type,
    downloads,
    errors,
    file_job_lookup,
    job_fields,
    job_logs,
    job_lookup,
    kinds,
    options,
    session,
    shell_completion,
    sync_set_requests,
)
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model
from kilnwork.dispatch.journal.sqlite import queries
from kilnwork.kit import http_types, ids
from kilnwork.kube import errors as kube_errors
from kilnwork.server import abbreviated_ids, results

_NAMESPACE = "default"
"""The only namespace in a directory of `kiln.start`, and the default in one of `kiln up`."""

_SHOWN = 5
"""Number of tasks that the error for an unknown task lists."""

_OFFERED = 100


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names and ids of tasks.

    If `--data` stands before the name, these are the tasks of that directory.
    """
    directory = ctx.params.get("directory")
    if directory is None:
        return shell_completion.tasks(ctx, param, incomplete)
    target = ctx.obj if isinstance(ctx.obj, options.ServerTarget) else options.ServerTarget()
    journal = Path(directory) / "journal.db"
    if not journal.exists():
        return []
    with contextlib.suppress(dispatch_errors.DispatchError):
        reader = queries.Queries(journal)
        try:
            found, _ = reader.tasks(
                target.namespace or _NAMESPACE,
                wanted=model.TaskQuery(),
                limit=_OFFERED,
                below=None,
            )
        finally:
            reader.close()
        names = dict.fromkeys(view.name or ids.task_text(view.task) for view in found)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []


@click.command()
@click.argument("name", metavar="NAME|ID|job/NAME|syncset/NAME", shell_complete=_complete)
@options.target
@click.option("-o", "--output", default=downloads.STDOUT, metavar="FILE",
              help="File to write; default: standard output.")  # fmt: skip
@click.option("--data", "--from", "directory", type=directory_type.Directory(), metavar="DIRECTORY",
              help="Read the result from this directory of `kiln.start(DIRECTORY)` or `kiln up`"
              " instead of asking a server.")  # fmt: skip
def command(name: str, output: str, directory: Path | None) -> None:
    """Print or save the result of a task that has succeeded.

    \b
    kiln result hello
    kiln result 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10 -o model.bin
    kiln result 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10 --data runs
    kiln result job/report-x7k2p -o report.json
    kiln result syncset/eod-risk

    The bytes are written unchanged, except that JSON is printed with a final newline. Binary
    results are not written to a terminal: use -o or a pipe. The return value of a Python function
    is JSON if JSON can represent it, otherwise a pickle; loading a pickle runs code that its author
    chose.

    The result of a Job is that of its finalizer, or of its only index; `kiln result NAME-INDEX`
    prints that of one index. The result of a SyncSet is that of its flow.

    Exits with 1 while the task is unfinished, with 6 if it failed or was killed.
    """
    downloads.check_target(output)
    job = job_lookup.explicit_name(name)
    if job is not None and directory is None:
        session.run(lambda s: _of_job(s, job, output))
        return
    sync_set = sync_set_requests.explicit_name(name)
    if sync_set is not None and directory is None:
        session.run(lambda s: _of_set(s, sync_set, output))
        return
    name = kinds.task_name(name)
    if directory is None:
        session.run(lambda s: _from_manager(s, name, output))
    else:
        namespace = options.current().namespace or _NAMESPACE
        _from_directory(directory, namespace, name, output)


async def _from_manager(s: session.Session, name: str, output: str) -> None:
    """Write the result of a task, which the manager sends, to `output`.

    The task is read first, so that the error for a missing result can name its state.
    """
    try:
        found = await s.get_json(s.tasks_path(name))
    except kube_errors.NotFound as error:
        declared = await _object(s, name)
        if declared is None:
            raise errors.Missing(
                f'there is no task "{name}" in namespace {s.one_namespace()}, or it was forgotten: '
                "`kiln tasks` lists what there is"
            ) from error
        _from_status(name, declared.get("status") or {}, output)
        return
    _check_state(name, found, _wait_hint(name))
    if found.get("result") is None:
        click.echo(f"task {name} has no result", err=True)
        return
    media_type = ""

    def head(response: http_types.ClientResponse) -> None:
        nonlocal media_type
        media_type = response.headers.get("content-type", "")
        _check_terminal(name, media_type, output)

    pieces = s.stream(s.tasks_path(name, "result"), head=head)
    async with contextlib.aclosing(pieces) as body:
        with _opened(output) as file:
            piece = b""
            async for piece in body:
                file.write(piece)
            _end_line(file, media_type, piece)


async def _of_job(s: session.Session, name: str, output: str) -> None:
    """Write the result of a Job to `output`.

    It comes from the Job's task, or from the status of the Job if the journal no longer has that
    task.
    """
    found = await job_lookup.get(s, name)
    if not job_fields.is_over(found):
        raise errors.CommandError(
            f"{job_fields.sentence(found)} and has no result yet: `kiln wait job/{name}` waits "
            "for its end"
        )
    job_fields.check_end(found)
    finalizer = (job_fields.spec(found).get("template") or {}).get("finalizer")
    if finalizer is None and job_fields.counts(found).total != 1:
        raise errors.Missing(
            f"Job {name} has {job_fields.counts(found).total:,} indexes and no finalizer, so each "
            f"index has its own result: `kiln result {name}-0` prints that of the first"
        )
    task = f"{name}-finalizer" if finalizer is not None else await _only_task(s, name)
    try:
        await s.get_json(s.tasks_path(task))
    except kube_errors.NotFound:
        status = {**job_fields.status(found), "state": api_task.State.SUCCESS}
        _from_status(task, status, output)
    else:
        await _from_manager(s, task, output)


async def _only_task(s: session.Session, name: str) -> str:
    """Return the id of the only task of a Job with one index."""
    item = await job_logs.find_index(s, name, 0)
    return f"{name}-0" if item is None else str(item["task"])


async def _of_set(s: session.Session, name: str, output: str) -> None:
    found = await sync_set_requests.get(s, name)
    if not sync_set_requests.is_over(found):
        raise errors.CommandError(
            f"{sync_set_requests.sentence(found)} It has no result yet: `kiln wait syncset/{name}` "
            "waits for its end"
        )
    sync_set_requests.check_end(found)
    namespace = session.quoted(s.one_namespace())
    path = f"/v1/namespaces/{namespace}/syncsets/{session.quoted(name)}/result"
    pieces = s.stream(path, head=lambda _: None)
    async with contextlib.aclosing(pieces) as body:
        with _opened(output) as file:
            piece = b""
            async for piece in body:
                file.write(piece)
            _end_line(file, attempts.JSON, piece)


async def _object(s: session.Session, name: str) -> dict[str, Any] | None:
    """Return the Task object of that name, or None if there is none.

    Raises Missing if a file job has that name.
    """
    with contextlib.suppress(kube_errors.NotFound):
        return await s.ask("GET", s.path(api_kinds.TASKS, name, namespace=s.one_namespace()))
    if await file_job_lookup.find_readable(s, name) is not None:
        raise errors.Missing(f"{name} is a file job: `kiln results {name}` prints its results")
    if await job_lookup.find_readable_job(s, name) is not None:
        raise errors.Missing(f"{name} is a Job: `kiln result job/{name}` prints its result")
    return None


def _from_status(name: str, status: Mapping[str, Any], output: str) -> None:
    """Write the result in the status of a Task to `output`.

    For a Task that the journal does not have yet, or no longer has.
    """
    _check_state(name, {"state": api_task.State.PENDING, **status}, _wait_hint(name))
    kept = status.get("result")
    if kept is None:
        click.echo(f"task {name} has no result", err=True)
        return
    if "value" not in kept:
        raise errors.Missing(
            f"the result of task {name} is gone: the journal that held it was lost or replaced"
        )
    with _opened(output) as file:
        file.write(msgspec.json.encode(kept["value"]))
        _end_line(file, attempts.JSON, b"")


def _from_directory(directory: Path, namespace: str, name: str, output: str) -> None:
    view = _view(directory, namespace, name)
    known = {"state": view.state, "reason": view.reason, "message": view.message}
    _check_state(name, known, "it runs, or will run at the next kiln.start of that directory")
    payload = results.flatten_stream(view.result)
    if payload is None:
        click.echo(f"task {name} has no result", err=True)
        return
    _check_terminal(name, payload.media_type, output)
    blobs = directory / "blobs" / view.namespace
    with _opened(output) as file:
        data = payload.data if payload.digest is None else _blob(blobs, payload.digest)
        file.write(data)
        _end_line(file, payload.media_type, data)


def _view(directory: Path, namespace: str, name: str) -> model.TaskView:
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
        view = view or reader.find(namespace, name) or _abbreviated(reader, namespace, name)
        if view is None:
            raise errors.Missing(
                f"the journal of {directory} has no task {name!r} in namespace {namespace}"
                f"{_newest(reader, namespace)}"
            )
    finally:
        reader.close()
    return view


def _abbreviated(reader: queries.Queries, namespace: str, name: str) -> model.TaskView | None:
    """Return the task whose id begins or ends with the given digits, or None.

    Raises Conflict if there are several such tasks.
    """
    digits = ids.abbreviated(name)
    if digits is None:
        return None
    found = reader.abbreviated(namespace, digits, limit=abbreviated_ids.MAX_SHOWN + 1)
    task = abbreviated_ids.find_only(digits, found)
    return None if task is None else reader.task(task)


def _newest(reader: queries.Queries, namespace: str) -> str:
    """Return a hint that lists the newest tasks of the namespace with their ids."""
    found, _ = reader.tasks(namespace, wanted=model.TaskQuery(), limit=_SHOWN, below=None)
    shown = [f"{ids.task_text(v.task)} ({v.function or v.name}, {v.state})" for v in found]
    return f"; the newest are {', '.join(shown)}" if shown else ""


def _blob(blobs: Path, digest: bytes) -> memoryview:
    try:
        return local_blobs.Blobs(blobs, durable=True).get(digest)
    except data_errors.BlobMissing as error:
        raise errors.Missing(f"the result is gone: {error}") from error


def _wait_hint(name: str) -> str:
    return f"`kiln wait {name}` waits for its end"


def _check_state(name: str, found: Mapping[str, Any], hint: str) -> None:
    state, why = found["state"], found.get("message") or found.get("reason", "")
    if not api_task.State(state).final:
        waits = f" ({why})" if why and state != api_task.State.RUNNING else ""
        raise errors.CommandError(f"task {name} is {state}{waits} and has no result yet: {hint}")
    if state != api_task.State.SUCCESS:
        raise errors.TaskFailed(f"task {name} is {state} and has no result: {why}")


def _check_terminal(name: str, media_type: str, output: str) -> None:
    """Refuse to write binary data to a terminal."""
    if media_type == attempts.JSON or output != downloads.STDOUT or not sys.stdout.isatty():
        return
    what = "a Python pickle" if media_type == attempts.PICKLE else f"of type {media_type}"
    raise errors.InvalidInput(
        f"the result of task {name} is {what}: name a file with -o, or pipe it"
    )


@contextlib.contextmanager
def _opened(output: str) -> Iterator[IO[bytes]]:
    if output == downloads.STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with downloads.open_atomically(Path(output)) as file:
            yield file
    except OSError as error:
        raise errors.CommandError(f"{output}: {error.strerror or error}") from error


def _end_line(file: IO[bytes], media_type: str, end: bytes | memoryview) -> None:
    """Write a newline after printed JSON, unless the JSON ends with one.

    `end`: the last bytes that were written.
    """
    is_printed = file is sys.stdout.buffer and media_type == attempts.JSON
    if is_printed and bytes(end[-1:]) != b"\n":
        file.write(b"\n")
