"""`kiln run`: create a Task from a command line; with --watch follow it and exit with its exit
code.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kilnwork.api import kinds, meta
from kilnwork.cli import (
    child_progress,
    errors,
    exits,
    manifests,
    object_waits,
    options,
    output_formats,
    session,
    shell_completion,
    task_logs,
)
from kilnwork.kit import coroutines, ids
from kilnwork.kube import errors as kube_errors

_LOG_WAIT_S = 15.0
"""How long to wait for the end of the log after the task has finished."""

_AGAIN_S = 1.0
"""Pause between two attempts to read the log while the server is away."""


@dataclass(frozen=True, slots=True)
class _Input:
    """Input of the task: the name of a TaskObject, and its data if the command creates it."""

    name: str
    data: Any = None
    made: bool = False


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="COMMAND [ARG…]")
@options.target
@click.option("--name", metavar="NAME", help="Name of the Task; default: run- and a random suffix.")
@click.option(
    "--cluster",
    metavar="NAME",
    help="TaskCluster to run on; default: `default`.",
    shell_complete=shell_completion.of_kind(kinds.TASK_CLUSTERS),
)
@click.option(
    "--env",
    "env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment variable of the command; repeatable.",
)
@click.option(
    "--input",
    "source",
    metavar="FILE|OBJECT",
    help="Input: a JSON or YAML file, - for standard input, or the name of a TaskObject.",
    shell_complete=shell_completion.files,
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of further attempts after the first one fails; default: 0.",
)
@click.option("--timeout", type=options.DURATION, help="Maximum run time of an attempt.")
@click.option("--watch", is_flag=True, help="Print states and output until the task finishes.")
@click.option("--dry-run", is_flag=True, help="Print the Task without creating it.")
@options.output("name", "json", "yaml")
def command(words: tuple[str, ...], source: str | None, form: str | None, **rest: Any) -> int:
    """Run a command as a Task.

    \b
    kiln run --watch -- python -c 'print(6 * 7)'
    kiln run --name total --input numbers.json --retries 2 -- ./sum.sh
    kiln run --dry-run -- make report > task.yaml

    Creates a Task and prints its name. The command can read its input from the file that
    $KILN_INPUT names, a JSON object in which the value of --input is the member "input", and can
    write its result as JSON to the file that $KILN_OUTPUT names.

    With --watch the command's output goes to standard output and state changes go to standard
    error; kiln exits with the command's exit code. Ctrl-C stops watching and leaves the task
    running.
    """
    given = _input(source)
    body = _body(words, given, rest)
    if rest["dry_run"]:
        click.echo(output_formats.document(body, form), nl=False)
        return exits.Exit.OK
    return session.run(lambda s: _run(s, body, given, form=form, watch=rest["watch"]))


def _input(source: str | None) -> _Input | None:
    if source is None:
        return None
    path = Path(source)
    if source != "-" and not path.is_file():
        if "/" in source or path.suffix:
            raise errors.InvalidInput(f"--input {source}: no such file")
        return _Input(source)
    text = manifests.read_stdin() if source == "-" else manifests.read_text(path)
    found = [value for _, value in manifests.documents(text, source=source)]
    if len(found) != 1:
        raise errors.InvalidInput(f"--input {source}: expected one JSON or YAML document")
    return _Input(f"input-{ids.new_uid()[:8]}", found[0], made=True)


def _body(words: Sequence[str], given: _Input | None, rest: dict[str, Any]) -> meta.JsonObject:
    spec: dict[str, Any] = {"command": list(words)}
    if rest["cluster"]:
        spec["clusterName"] = rest["cluster"]
    if rest["env"]:
        spec["env"] = [_env(text) for text in rest["env"]]
    if given is not None:
        spec["inputObject"] = given.name
    if rest["retries"]:
        spec["retry"] = {"maxAttempts": rest["retries"] + 1}
    if rest["timeout"]:
        spec["timeouts"] = {"runningSeconds": rest["timeout"]}
    metadata = {"name": rest["name"]} if rest["name"] else {"generateName": "run-"}
    return {
        "apiVersion": kinds.TASKS.api_version,
        "kind": kinds.TASKS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _env(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise errors.InvalidInput(f"--env {text}: write NAME=VALUE")
    return {"name": name, "value": value}


async def _run(
    s: session.Session,
    body: meta.JsonObject,
    given: _Input | None,
    *,
    form: str | None,
    watch: bool,
) -> int:
    namespace = s.one_namespace()
    if watch:
        await (
            s.find_manager()
        )  # before the task begins: reports that the user may not read its output
    path = s.path(kinds.TASKS, namespace=namespace)
    try:
        made = await s.ask("POST", path, query={"fieldValidation": "Strict"}, body=body)
    except kube_errors.AlreadyExists as error:
        name = body["metadata"].get("name", "")
        raise errors.CommandError(
            f"{error}: choose another --name, or remove it with `kiln delete task {name}`"
        ) from error
    if given is not None and given.made:
        await _make_input(s, made, given)
    _announce(made, form=form, watch=watch)
    if not watch:
        return exits.Exit.OK
    return await _Follower(s, made).follow()


def _announce(made: meta.JsonObject, *, form: str | None, watch: bool) -> None:
    text = output_formats.full_name(kinds.TASKS, made["metadata"]["name"])
    if form in ("json", "yaml"):
        text = output_formats.document(made, form).rstrip("\n")
    elif form is None:
        text += " created"
    click.echo(text, err=watch and form is None)


async def _make_input(s: session.Session, made: meta.JsonObject, given: _Input) -> None:
    """Create the TaskObject with the input, owned by the Task, so that it is deleted with the Task.

    Deletes the Task if the TaskObject cannot be created.
    """
    metadata = made["metadata"]
    body = {
        "apiVersion": kinds.TASK_OBJECTS.api_version,
        "kind": kinds.TASK_OBJECTS.kind,
        "metadata": {
            "name": given.name,
            "ownerReferences": [
                {
                    "apiVersion": kinds.TASKS.api_version,
                    "kind": kinds.TASKS.kind,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "data": given.data,
    }
    path = s.path(kinds.TASK_OBJECTS, namespace=metadata["namespace"])
    try:
        await s.ask("POST", path, body=body)
    except kube_errors.KubeError:
        with contextlib.suppress(kube_errors.KubeError):
            task = s.path(kinds.TASKS, metadata["name"], namespace=metadata["namespace"])
            await s.ask("DELETE", task)
        raise


def _in_words(error: Exception, s: session.Session) -> errors.CommandError:
    if isinstance(error, kube_errors.KubeError):
        return session.explain_error(error, s.server)
    return error if isinstance(error, errors.CommandError) else errors.CommandError(str(error))


class _Follower:
    """Follower of one Task: prints its states to standard error and its output to standard
    output.
    """

    def __init__(self, s: session.Session, made: meta.JsonObject) -> None:
        self._session = s
        self._name: str = made["metadata"]["name"]
        self._namespace: str = made["metadata"]["namespace"]
        self._uid: str = made["metadata"]["uid"]
        self._last = ""
        self._children = child_progress.children(s, self._name)
        self._say_at = 0.0
        self._output: asyncio.Task[None] | None = None
        self._unread: errors.CommandError | None = None

    async def follow(self) -> int:
        """Follow the task until it finishes and return the exit code."""
        background = coroutines.BackgroundWork("run")
        subject = object_waits.WaitSubject(kinds.TASKS, self._name, self._namespace)
        versions = object_waits.versions(self._session, subject)
        try:
            async with contextlib.aclosing(versions):
                async for version in versions:
                    found = self._checked(version)
                    status = found.get("status") or {}
                    if status.get("attempts") and self._output is None:
                        self._output = background.start("output", self._copy())
                    if object_waits.final(found):
                        await self._rest()
                    await self._say(found)
                    if object_waits.final(found):
                        return self._end(status)
        except asyncio.CancelledError:
            click.echo(
                f"task {self._name} continues: `kiln logs -f {self._name}` follows it, "
                f"`kiln cancel {self._name}` stops it",
                err=True,
            )
            raise
        finally:
            await background.stop()
        raise AssertionError("versions() never ends")

    def _checked(self, found: meta.JsonObject | None) -> meta.JsonObject:
        if found is None or found["metadata"]["uid"] != self._uid:
            raise errors.TaskFailed(f"task {self._name} was deleted")
        return found

    async def _say(self, found: meta.JsonObject) -> None:
        """Print the state of the task when it has changed.

        In a terminal, also prints the progress of the task's children from time to time.
        """
        text, status = object_waits.described(found), found.get("status") or {}
        if status.get("state") and text != self._last:
            click.echo(f"{self._name}: {text}", err=True)
            self._last = text
        if self._children is None:
            return
        line, now_s = await self._children.look(found), self._session.clock.monotonic()
        if line and now_s >= self._say_at and not object_waits.final(found):
            click.echo(line, err=True)
            self._say_at = now_s + child_progress.SAY_S

    async def _copy(self) -> None:
        copy = task_logs.Copy(self._session, self._name, {"follow": "true"})
        while True:
            try:
                await copy.run()
            except (kube_errors.Unavailable, errors.Unreachable) as error:
                self._unread = _in_words(error, self._session)
                await asyncio.sleep(_AGAIN_S)
            except errors.SERVER_ERRORS as error:
                self._unread = _in_words(error, self._session)
                return
            else:
                self._unread = None
                return

    async def _rest(self) -> None:
        if self._output is not None:
            await asyncio.wait([self._output], timeout=_LOG_WAIT_S)

    def _end(self, status: dict[str, Any]) -> int:
        if self._unread is not None:
            click.echo(f"the output was not read to its end: {self._unread}", err=True)
            click.echo(f"`kiln logs {self._name}` shows all output", err=True)
        if status["state"] == "Success":
            return exits.Exit.OK if self._unread is None else self._unread.code
        raise errors.TaskFailed(
            f"task {self._name} ended {status['state']}: see `kiln why {self._name}`",
            code=status.get("exitCode"),
        )
