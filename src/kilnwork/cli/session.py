"""Session of one command with a server: it selects the server, sends requests and explains errors.

Used by every client command; `run` is the entry point. It uses `kube.transport` directly, because
commands work with objects as the server sends them (tables, any kind), not with structs. That
imports aiohttp, which takes longer than all other imports together: it is imported only when a
server is asked, not for help and completion.
"""

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib import parse

import click
import msgspec

from kilnwork import version
from kilnwork.api import api_resources, manager_access, meta
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import errors, kinds, lazy_import, options
from kilnwork.endpoints import discovery_protocol
from kilnwork.endpoints import errors as endpoint_errors
from kilnwork.kit import clock, http_types
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import config
from kilnwork.kube import errors as kube_errors

if TYPE_CHECKING:
    from kilnwork.kube import transport

T = TypeVar("T")

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""Accept header for a list as a metav1.Table with the columns of its kind."""

PAGE = 500
"""Number of objects per page, as in kubectl."""


_OUR_KINDS = f"/apis/{api_kinds.GROUP}/"
"""Path prefix of kilnwork's kinds: a 404 without an object's name means that a kind is not served.
"""

_MANAGERS = ("/v1/", "/jobs", "/files", "/blobs/")
"""Prefixes of the manager's paths, wherever it runs."""


_ACCOUNTS = (manager_access.DRIVER_ACCOUNT, manager_access.READER_ACCOUNT)
"""ServiceAccounts whose tokens are requested, the one with more rights first."""

_ENDPOINT_ERRORS: Mapping[type[endpoint_errors.EndpointError], type[errors.CommandError]] = {
    endpoint_errors.EndpointError: errors.CommandError,
    endpoint_errors.AccessDenied: errors.AccessRefused,
    endpoint_errors.ManagerNotReady: errors.Unreachable,
}


class Warnings:
    """Printer of warnings of the server and of `kiln`; it prints each text once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        """Print a warning, unless it was printed before."""
        if text not in self._said:
            self._said.add(text)
            click.echo(f"Warning: {text}", err=True)


class _Route(NamedTuple):
    """Route to the manager: the URL prefix and the headers for its paths.

    Both expire at the given time.
    """

    prefix: str = ""
    headers: Mapping[str, str] = {}
    until: float = float("inf")


class Session:
    """Client of one server for the duration of a command.

    Its namespace is used for requests that name none.
    """

    def __init__(
        self, settings: config.Config, http: "transport.Transport", target: options.ServerTarget
    ) -> None:
        self.server = settings.server
        self.settings = settings
        self.http = http
        self.target = target
        self.namespace = target.namespace or settings.namespace
        self.kinds = kinds.Kinds(self)
        self.clock = clock.SystemClock()
        self.warn = Warnings().say
        self._route: _Route | None = None

    async def get_json(self, path: str) -> dict[str, Any]:
        return await self.ask("GET", path)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = http_types.JSON,
        accept: str = http_types.JSON,
    ) -> dict[str, Any]:
        """Send a request and decode the JSON object in the response.

        Paths of the manager are sent to it, wherever it runs.
        """
        encoded = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type, "Accept": accept}
        try:
            response = await self.exchange(
                method, path, query=query, body=encoded, headers=headers, timeout_s=30.0
            )
        except kube_errors.NotFound as error:
            if path.startswith(_OUR_KINDS) and not error.details.get("name"):
                raise errors.Unreachable(await self._without_kinds()) from error
            raise
        try:
            return msgspec.json.decode(response.body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise errors.CommandError(f"{self.server}{path} did not respond with JSON") from error

    async def _without_kinds(self) -> str:
        """Return an error text with advice for a server that does not serve the kinds of
        kilnwork.
        """
        text = f"{self.server} does not serve the kinds of {api_kinds.GROUP}: "
        with contextlib.suppress(errors.CommandError, kube_errors.KubeError):
            if await self.carry_out(discovery_protocol.ask_server(self.settings)) is not None:
                return (
                    f"{text}`kubectl get --raw '/readyz?verbose'` says which definition was "
                    "deleted or replaced; a restart of `kiln up` installs what is missing"
                )
        return (
            f"{text}choose another server by KUBECONFIG or --context, or add them there: "
            "`kiln install | kubectl apply -f -`"
        )

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
        """Send a request with a body of bytes and return the response with its headers.

        Raises a KubeError, or a CommandError if the manager is asked and cannot be reached.
        """
        route = await self._route_of(path)
        rest = dict(headers or {})
        asked = http_types.ClientRequest(
            method=method,
            path=route.prefix + path,
            query=query,
            body=body,
            content_type=rest.pop("Content-Type", http_types.BYTES),
            accept=rest.pop("Accept", "*/*"),
            timeout_s=timeout_s,
            headers={**route.headers, **rest},
        )
        return await self.http.send(asked)

    def path(
        self,
        served: api_resources.Resource,
        name: str | None = None,
        *,
        namespace: str | None = None,
    ) -> str:
        """Return the URL path of a collection or object.

        The namespace is by default that of the session.
        """
        base = served.base(quoted(namespace or self.namespace))
        return base if name is None else f"{base}/{quoted(name)}"

    def scope(self, served: api_resources.Resource) -> str:
        """Return the URL path of the collection that `-n` and `-A` select."""
        return served.base() if self.target.all_namespaces else self.path(served)

    def tasks_path(self, name: str, sub: str = "") -> str:
        """Return the URL path below `/v1` of the task with the given name or id."""
        base = f"/v1/namespaces/{quoted(self.one_namespace())}/tasks/{quoted(name)}"
        return f"{base}/{sub}" if sub else base

    async def check_namespace(self) -> None:
        """Raise `errors.Missing` if the session's namespace does not exist.

        Call it when something was not found in the namespace. Does nothing for users who may not
        read namespaces.
        """
        if self.target.all_namespaces:
            return
        try:
            await self.ask("GET", api_resources.NAMESPACES.base() + "/" + quoted(self.namespace))
        except kube_errors.NotFound as error:
            raise errors.Missing(
                f'namespace "{self.namespace}" does not exist: `kiln get namespaces` lists those '
                "that do"
            ) from error
        except errors.SERVER_ERRORS:
            return

    async def say_nothing_found(self, what: str, *, hint: str = "") -> None:
        """Print to standard error that a list is empty. Raises what `check_namespace` raises."""
        await self.check_namespace()
        where = "" if self.target.all_namespaces else f" in namespace {self.namespace}"
        click.echo(f"{what}{where}{hint}", err=True)

    def one_namespace(self) -> str:
        """Return the session's namespace, for a request about a single object.

        Raises `errors.InvalidInput` under `-A`.
        """
        if self.target.all_namespaces:
            raise errors.InvalidInput("an object has one namespace: say -n NAMESPACE instead of -A")
        return self.namespace

    async def pages(
        self, path: str, *, query: Mapping[str, str] | None = None, accept: str = http_types.JSON
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the pages of a list, with one request for each page."""
        wanted = {**(query or {}), "limit": str(PAGE)}
        while True:
            page = await self.ask("GET", path, query=wanted, accept=accept)
            yield page
            following = page.get("metadata", {}).get("continue")
            if not following:
                return
            wanted["continue"] = following

    async def items(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> list[meta.JsonObject]:
        """Return all objects of a list, which is read page by page."""
        return [item async for page in self.pages(path, query=query) for item in page["items"]]

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        accept: str = "*/*",
        head: Callable[[http_types.ClientResponse], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a response as they arrive, without a timeout.

        `head` is called first, with status and headers. Close it early only with
        `contextlib.aclosing`: it holds a connection.
        """
        route = await self._route_of(path)
        asked = http_types.ClientRequest(
            method="GET",
            path=route.prefix + path,
            query=query,
            accept=accept,
            timeout_s=None,
            headers={**route.headers, **(headers or {})},
        )
        async with self.http.open(asked) as response:
            _transport("keep_alive")(response)
            if head is not None:
                reason = response.reason or ""
                head(http_types.ClientResponse(response.status, reason, b"", response.headers))
            async for some in _watching("pieces")(self.http, response.content):
                yield some

    async def find_manager(self) -> None:
        """Find the route to the manager now, instead of at the first request to it.

        Raises `errors.AccessRefused` if access to the manager is denied; a manager that is not
        ready yet is asked again by later requests.
        """
        with contextlib.suppress(errors.Unreachable):
            await self._route_of(_MANAGERS[0])

    async def carry_out(self, steps: discovery_protocol.Steps[T]) -> T:
        """Send the requests of the discovery steps and return their result.

        Raises CommandError with what is missing, or a KubeError without a response.
        """
        try:
            request = next(steps)
            while True:
                request = steps.send(await self.http.exchange(request))
        except StopIteration as done:
            found: T = done.value
            return found
        except endpoint_errors.EndpointError as error:
            raise _ENDPOINT_ERRORS[type(error)](str(error)) from error

    async def _route_of(self, path: str) -> _Route:
        if not path.startswith(_MANAGERS):
            return _Route()
        if self._route is None or self.clock.monotonic() >= self._route.until:
            self._route = await self._find_route()
        return self._route

    async def _find_route(self) -> _Route:
        if await self.carry_out(discovery_protocol.ask_server(self.settings)) is not None:
            return _Route()
        home, until = manager_access.manager_namespace(os.environ), float("inf")
        own = (await self.http.credential()).token
        headers: Mapping[str, str] = {manager_access.TOKEN_HEADER: own or ""}
        if not own:
            wanted = discovery_protocol.request_token(self.server, self.namespace, _ACCOUNTS)
            made = await self.carry_out(wanted)
            headers, until = made.headers, self.clock.monotonic() + made.lasts_s
        await self.carry_out(discovery_protocol.ask_behind(home, headers))
        return _Route(manager_access.proxy_path(home), headers, until)

    async def changes(
        self, path: str, *, query: Mapping[str, str], accept: str = http_types.JSON
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a watch, `{"type", "object"}`, until the server ends it.

        Raises `kube.errors.Expired` when the resourceVersion is too old. Close it early only with
        `contextlib.aclosing`.
        """
        wanted = {**query, "watch": "1", "allowWatchBookmarks": "true"}
        asked = http_types.ClientRequest(
            method="GET", path=path, query=wanted, accept=accept, timeout_s=None
        )
        async with self.http.open(asked) as response:
            _transport("keep_alive")(response)
            async for lines in _watching("batches")(self.http, response.content):
                for line in lines:
                    yield _item(line)


def _item(line: bytes) -> dict[str, Any]:
    item = msgspec.json.decode(line, type=dict[str, Any])
    if item["type"] == "ERROR":
        error: kube_errors.ApiError = _transport("status_error")(
            msgspec.json.encode(item["object"])
        )
        raise error
    return item


def _transport(name: str) -> Any:
    return lazy_import.load("kilnwork.kube.transport", name)


def _watching(name: str) -> Any:
    return lazy_import.load("kilnwork.kube.watch_stream", name)


def decode_json(response: http_types.ClientResponse) -> Any:
    """Return the JSON value in the body of a response. Raises CommandError if it is not JSON."""
    try:
        return msgspec.json.decode(response.body)
    except msgspec.MsgspecError as error:
        raise errors.CommandError("the server did not respond with JSON") from error


def quoted(text: str) -> str:
    return parse.quote(text, safe="")


def query_of(url: str) -> dict[str, str]:
    """Return the query parameters of a URL, absolute or relative."""
    return dict(parse.parse_qsl(parse.urlsplit(url).query, keep_blank_values=True))


def run(work: Callable[[Session], Awaitable[T]]) -> T:
    """Call `work` with a session on the server that the running command's options choose.

    Errors become CommandErrors that say what to do.
    """
    target = options.current()
    directory = None if target.data is None else Path(target.data)
    if directory is not None and not (directory / "kubeconfig").exists():
        return _in_directory(work, directory, target)
    if directory is not None:  # of `kiln up`
        target = dataclasses.replace(target, kubeconfig=str(directory / "kubeconfig"))
    settings = load_settings(target)
    try:
        return asyncio.run(_connected(work, settings))
    except kube_errors.KubeError as error:
        raise explain_error(error, settings.server) from error


def _in_directory(
    work: Callable[[Session], Awaitable[T]], directory: Path, target: options.ServerTarget
) -> T:
    """Call `work` with a session on the tasks of a directory.

    Imports modules that only this case needs.
    """
    opened = lazy_import.load("kilnwork.cli.directory_session", "open_directory")

    async def connected() -> T:
        async with opened(directory, target) as session:
            return await work(session)

    try:
        return asyncio.run(connected())
    except kube_errors.KubeError as error:
        raise explain_error(error, str(directory)) from error


def load_settings(target: options.ServerTarget) -> config.Config:
    """Return the server and the credentials that a command uses.

    They come from the options, $KUBECONFIG or the default data directory.
    """
    path = Path(target.kubeconfig) if target.kubeconfig else None
    try:
        return config.load(path, context=target.context)
    except kit_errors.ConfigurationError as error:
        raise errors.Unreachable(str(error)) from error


async def _connected(work: Callable[[Session], Awaitable[T]], settings: config.Config) -> T:
    async with connect(settings, options.current()) as session:
        try:
            return await work(session)
        except (kube_errors.NotFound, errors.Missing):
            await session.check_namespace()
            raise


@contextlib.asynccontextmanager
async def connect(settings: config.Config, target: options.ServerTarget) -> AsyncIterator[Session]:
    warnings = Warnings()
    http: transport.Transport = _transport("Transport")(
        settings,
        user_agent=f"kiln/{version.__version__}",
        time=clock.SystemClock(),
        on_warning=warnings.say,
    )
    session = Session(settings, http, target)
    session.warn = warnings.say
    async with http:
        yield session


def explain_error(error: kube_errors.KubeError, server: str) -> errors.CommandError:
    """Return a CommandError for a KubeError: what failed, what to do, and the exit code."""
    if isinstance(error, kube_errors.Unavailable) and not error.status:
        timed_out = error.reason == "Timeout"
        why = "timed out" if timed_out else str(error).removeprefix(f"cannot reach {server}: ")
        return errors.Unreachable(endpoint_errors.unanswered(server, why))
    if isinstance(error, kube_errors.Untrusted):
        return errors.Unreachable(
            f"{error}. The kubeconfig is of another server: take the one that `kiln up` prints."
        )
    if isinstance(error, kube_errors.NotFound):
        return errors.Missing(str(error))
    if isinstance(error, kube_errors.Unauthorized):
        return errors.AccessRefused(
            f"{server} does not accept the token of the kubeconfig ({error}): take the kubeconfig "
            "that `kiln up` prints; for another cluster log in again."
        )
    if isinstance(error, kube_errors.Forbidden):
        return errors.AccessRefused(str(error))
    return errors.CommandError(str(error))
