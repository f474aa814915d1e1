"""Access to the tasks of a `kiln.start(DIRECTORY)` from the command line: `--data DIRECTORY`.

Used by `session` in the place of a server. Reads come from the journal of the directory, whether a
process has it open or not, through the same app that serves a manager's `/v1`, in this process. For
changes (retry, cancel) the command becomes a driver of the directory for a moment: a dispatcher
that serves the directory carries them out; if there is none, one is started and ends when it has no
work left.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib import parse

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.cli import errors, options, session
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import attempt_logs
from kilnwork.dispatch.journal.sqlite import queries
from kilnwork.kit import asgi, clock, coroutines, http_types, ids
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import config, transport
from kilnwork.kube import errors as kube_errors
from kilnwork.sdk import driver_session, local
from kilnwork.sdk import session as sdk_session
from kilnwork.server import ports, task_api

T = TypeVar("T")

NAMESPACE = "default"
"""The only namespace of a directory."""

_FORGETS = "a kiln.start() forgets no single task: `kiln prune --data` forgets what is over"
_TASKS = f"/v1/namespaces/{NAMESPACE}/tasks"
JOIN_S = 20.0
"""How many seconds a command that ends waits until the work it requested has started."""

_LOOK_S = 0.05
_COUNTS = f"/v1/namespaces/{NAMESPACE}/task-counts"
_PRUNE = f"/v1/namespaces/{NAMESPACE}/prune"
_SERVED = (_TASKS, _COUNTS, _PRUNE, "/v1/tasks", "/v1/task-counts", "/v1/prune")


class DirectoryJournal:
    """`server.ports.Journal` on the journal of a `kiln.start(DIRECTORY)`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._reader = queries.Queries(directory / "journal.db")
        self._clock = clock.SystemClock()
        self._driver: driver_session.Driver | None = None
        self._retried: list[ids.TaskId] = []

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """Return the newest run of a task, or None."""
        return self._reader.task(task)

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """Return the newest task with that name, or None."""
        return self._reader.find(namespace, name)

    def counts(self, namespace: str | None) -> list[model.TaskCount]:
        """Return the number of tasks by function and state."""
        return self._reader.counts(namespace)

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Return the path of the output of an attempt."""
        ref = attempts.AttemptRef(task, run, attempt)
        return attempt_logs.path(self._directory / "logs", ref)

    async def kill(self, task: ids.TaskId) -> None:
        """Ask the dispatcher to stop the task."""
        await asyncio.to_thread(self._as_driver, lambda session: session.cancel((task,)))

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> None:
        """Raise `kube.errors.Conflict`, because a driver cannot suspend tasks."""
        raise kube_errors.from_status(409, message="a kiln.start() suspends nothing: cancel it")

    async def retry(self, task: ids.TaskId, *, force: bool) -> None:
        """Start a new run of a task. Raises `dispatch.errors.RunRefused`."""
        await self._again(task, failed=False, force=force)

    async def retry_failed(self, task: ids.TaskId) -> model.Retried:
        """Start new runs of a failed task and of the tasks that failed with it.

        Raises `dispatch.errors.RunRefused`.
        """
        await self._again(task, failed=True, force=False)
        return model.Retried(tasks=(task,))

    async def prune(self, asked: model.Pruning, *, dry_run: bool) -> model.Pruned:
        """Delete finished tasks.

        Raises `kube.errors.Conflict` if the dispatcher of the directory refuses.
        """

        def ask(session: sdk_session.Session) -> model.Pruned:
            done = session.prune(
                older_s=asked.older_s,
                keep=asked.keep,
                free_bytes=asked.free_bytes,
                keyed=asked.keyed,
                dry_run=dry_run,
            )
            return model.Pruned(done.tasks, done.size_bytes)

        try:
            return await asyncio.to_thread(self._as_driver, ask)
        except kit_errors.KilnError as error:
            raise kube_errors.from_status(409, message=str(error)) from error

    async def forget(self, task: ids.TaskId) -> None:
        """Raise `kube.errors.Conflict`, because a driver cannot delete a single task."""
        raise kube_errors.from_status(409, message=_FORGETS)

    def tasks(
        self, namespace: str | None, *, wanted: model.TaskQuery, limit: int, below: int | None
    ) -> ports.TaskPage:
        """Return a page of tasks, newest first."""
        return ports.TaskPage(
            *self._reader.tasks(namespace, wanted=wanted, limit=limit, below=below)
        )

    async def abbreviated(self, namespace: str, digits: str, *, limit: int) -> list[ids.TaskId]:
        """Return the tasks whose ids begin or end with the given digits."""
        return await asyncio.to_thread(self._reader.abbreviated, namespace, digits, limit=limit)

    async def leave(self) -> None:
        """Release the directory once the requested work has started.

        A dispatcher that has neither drivers nor work ends, and a worker that has just been started
        takes a moment to join.
        """
        if self._driver is None:
            return
        deadline = self._clock.monotonic() + JOIN_S
        while not self._at_work() and self._clock.monotonic() < deadline:  # noqa: ASYNC110 - a file
            await asyncio.sleep(_LOOK_S)
        await asyncio.to_thread(self._driver.close)
        self._driver = None

    def close(self) -> None:
        """Close the journal. May be called again."""
        self._reader.close()

    async def _again(self, task: ids.TaskId, *, failed: bool, force: bool) -> None:
        def ask(session: sdk_session.Session) -> None:
            session.retry(task, failed=failed, force=force)

        try:
            await asyncio.to_thread(self._as_driver, ask)
        except kit_errors.ConfigurationError as error:
            raise dispatch_errors.RunRefused(str(error)) from error
        self._retried.append(task)

    def _as_driver(self, ask: Callable[[sdk_session.Session], T]) -> T:
        """Call `ask` with a session that is a driver of the directory, and return its result.

        Workers import from the current directory, like those of a program that is run here.
        """
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        if self._driver is None:
            self._driver = local.start(self._directory)
        return ask(self._driver)

    def _at_work(self) -> bool:
        """Return whether a task runs, or all retried tasks have finished already."""
        for state in (api_task.State.RUNNING, api_task.State.STAGING):
            wanted = model.TaskQuery(state=state)
            if self._reader.tasks(NAMESPACE, wanted=wanted, limit=1)[0]:
                return True
        views = map(self._reader.task, self._retried)
        return all(view is None or view.state.final for view in views)


class AppExchange:
    """One request to the REST API's app in this process, with its response as a stream."""

    def __init__(self, app: task_api.Api, method: str, path: str, query: Mapping[str, str]) -> None:
        self._app = app
        self._scope: asgi.Scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": parse.urlencode(query).encode(), "headers": [], asgi.USER: NAMESPACE,
        }  # fmt: skip
        self._sent: asyncio.Queue[asgi.Message] = asyncio.Queue()

    async def messages(self) -> AsyncGenerator[asgi.Message, None]:
        """Yield the messages of the app's response: the head, then pieces of the body.

        Close it early only with `contextlib.aclosing`.
        """
        background = coroutines.BackgroundWork("directory")
        running = background.start("request", self._app(self._scope, self._receive, self._sent.put))
        running.add_done_callback(lambda _: self._sent.put_nowait({"type": _OVER}))
        try:
            while (message := await self._sent.get())["type"] != _OVER:
                yield message
        finally:
            await background.stop()

    async def _receive(self) -> asgi.Message:
        """Wait until the request is cancelled: never return, so that no disconnect is reported.

        The apps that are called here do not read a request body.
        """
        await asyncio.Event().wait()
        raise AssertionError


_OVER = "over"


class _NoClusters:
    """`server.ports.Clusters` of a directory, which has no TaskClusters."""

    def namespaces(self) -> list[str]:
        """Return the only namespace of a directory."""
        return [NAMESPACE]

    def clusters(self, namespace: str) -> list[ports.ClusterSummary]:
        """Return an empty list."""
        return []


class DirectorySession(session.Session):
    """`session.Session` on a directory instead of a server: it has tasks and no other objects."""

    def __init__(self, directory: Path, target: options.ServerTarget) -> None:
        settings = config.Config(server=str(directory), namespace=NAMESPACE)
        super().__init__(settings, cast(transport.Transport, None), target)
        self._journal = DirectoryJournal(directory)
        nothing = cast(Any, None)  # requests for anything but tasks are not passed on
        self._app = task_api.Api(
            self._journal, _Everything(), _NoClusters(),
            jobs=nothing, outputs=_Outputs(), ponds=nothing, flows=nothing,
            channel="", blobs=directory / "blobs", time=self.clock,
        )  # fmt: skip

    def close(self) -> None:
        """Close the journal. May be called again."""
        self._journal.close()

    async def leave(self) -> None:
        """Release the directory; see `DirectoryJournal.leave`."""
        await self._journal.leave()

    async def check_namespace(self) -> None:
        """Do nothing, because `open_directory` has checked the namespace."""

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = 60.0,
    ) -> http_types.ClientResponse:
        """Send a request to the app and return the response, as if the app were a manager.

        Every path but those of tasks is not found.
        """
        status, received, data = 0, dict[str, str](), b""
        async with contextlib.aclosing(self._ask(method, path, query)) as messages:
            async for message in messages:
                status = message.get("status", status)
                received |= _headers(message)
                data += message.get("body", b"")
        response = http_types.ClientResponse(status, "", data, received)
        if not response.ok:
            raise _error(status, data)
        return response

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        accept: str = "*/*",
        head: Callable[[http_types.ClientResponse], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a response of the app, as if the app were a manager."""
        status, refused = 0, b""
        async with contextlib.aclosing(self._ask("GET", path, query)) as messages:
            async for message in messages:
                if "status" in message:
                    status = message["status"]
                    if head is not None and status < _REFUSED:
                        head(http_types.ClientResponse(status, "", b"", _headers(message)))
                elif status >= _REFUSED:
                    refused += message["body"]
                elif message["body"]:
                    yield message["body"]
        if status >= _REFUSED:
            raise _error(status, refused)

    async def find_manager(self) -> None:
        """Do nothing, because a directory has no manager."""

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None
    ) -> AsyncGenerator[asgi.Message, None]:
        if not path.startswith(_SERVED):
            name = parse.unquote(path.rpartition("/")[2])  # name of an object, not of a kind
            text = f"there is no {name!r} in {self.server}: `kiln tasks --data {self.server}`"
            raise kube_errors.from_status(404, "NotFound", text, details={"name": name})
        return AppExchange(self._app, method, path, query or {}).messages()


_REFUSED = 400


def _error(status: int, body: bytes) -> kube_errors.ApiError:
    return kube_errors.from_status(status, message=msgspec.json.decode(body, type=_Problem).message)


class _Problem(msgspec.Struct):
    """The fields of an error response of the app that this module reads."""

    message: str = ""


def _headers(message: asgi.Message) -> dict[str, str]:
    pairs = message.get("headers", ())
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}


class _Everything:
    """`server.ports.Rights` that allows everything: a user who can read the directory may change
    it.
    """

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        return None


class _Outputs:
    """`server.ports.Outputs` that does nothing, because workers write directly to the log files."""

    async def catch_up(self, ref: attempts.AttemptRef) -> None:
        return

    @contextlib.asynccontextmanager
    async def following(self, ref: attempts.AttemptRef) -> AsyncIterator[None]:
        yield


@contextlib.asynccontextmanager
async def open_directory(
    directory: Path, target: options.ServerTarget
) -> AsyncIterator[DirectorySession]:
    """Yield a session on the tasks of a directory.

    Raises `errors.Missing` if the directory has no journal, or if `target` names a namespace that a
    directory does not have.
    """
    if target.namespace not in (None, NAMESPACE):
        raise errors.Missing(
            f'namespace "{target.namespace}" does not exist: a kiln.start() has all tasks in '
            f'namespace "{NAMESPACE}"'
        )
    if not (directory / "journal.db").exists():
        raise errors.Missing(
            f"{directory}: no kiln.start() has used this directory, and no `kiln up`"
        )
    try:
        made = DirectorySession(directory, target)
    except dispatch_errors.DispatchError as error:
        raise errors.CommandError(str(error)) from error
    with contextlib.closing(made):
        try:
            yield made
        finally:
            await made.leave()
