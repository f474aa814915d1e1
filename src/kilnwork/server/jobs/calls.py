"""One request and what answers it: the seam between Starlette's router and the handlers.

Used by every module of this package. A `Resource` is a path with its methods; it turns errors into
problem details (RFC 9457), answers OPTIONS, and 405 with `Allow` (RFC 9110 §15.5.6).
"""

import enum
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib import parse

from kilnwork.api import names
from kilnwork.data import errors as data_errors
from kilnwork.jobs import errors as jobs_errors
from kilnwork.kit import serving
from kilnwork.server import asgi, errors
from kilnwork.server.jobs import notices

log = logging.getLogger(__name__)

JSON = "application/json"
DEFAULT_NAMESPACE = "default"
RESOURCE = "jobs"

_Word = TypeVar("_Word", bound=enum.StrEnum)

Headers = Iterable[tuple[bytes, bytes]]


class Call:
    """One request. `user`: who asks, None for nobody; `begun`: the answer's head has been sent;
    `warnings`: what was accepted and changes nothing, to be sent with the answer."""

    __slots__ = (
        "_first", "_query", "begun", "method", "receive", "scope", "user", "warnings",
    )  # fmt: skip

    def __init__(self, scope: asgi.Scope, receive: asgi.Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.user: Any = scope.get("kiln.user")
        self.begun = False
        self.warnings: list[str] = []
        self._query: asgi.Request | None = None
        self._first: dict[bytes, bytes] | None = None

    @property
    def query(self) -> asgi.Request:
        """The parameters of the URL. Raises BadRequest if there are two of a name."""
        if self._query is None:
            found = asgi.request(self.scope, self.receive)
            raw = self.scope["query_string"]
            if len(found.query) <= raw.count(b"&"):
                _check_once(raw)
            self._query = found
        return self._query

    @property
    def namespace(self) -> str:
        """`?namespace=`, else `default`. Raises BadRequest for what cannot be one."""
        if not self.scope["query_string"]:
            return DEFAULT_NAMESPACE
        name = self.query.query.get("namespace", DEFAULT_NAMESPACE)
        if name != DEFAULT_NAMESPACE and not names.is_dns_label(name):
            raise errors.BadRequest(
                f"namespace={name[:100]!r}: a namespace is up to 63 lower-case letters, digits "
                "and dashes"
            )
        return name

    @property
    def user_name(self) -> str:
        """Who asks, as Kubernetes knows them; "" for nobody."""
        return str(getattr(self.user, "name", ""))

    def param(self, name: str) -> str:
        """A part of the path."""
        return str(self.scope["path_params"][name])

    def header(self, name: bytes) -> str | None:
        """The first header of that lower-case name, None without one."""
        if self._first is None:
            self._first = dict(reversed(self.scope["headers"]))
        found = self._first.get(name)
        return None if found is None else found.decode("latin-1")

    def headers(self, name: bytes) -> list[str]:
        """All headers of that lower-case name."""
        found = self.scope["headers"]
        return [bytes(value).decode("latin-1") for key, value in found if key == name]

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """A parameter as a whole number, None if it is not there. Raises BadRequest."""
        self._check_given(name)
        return self.query.number(name, least=least, most=most)

    def text(self, name: str) -> str | None:
        """A parameter as it is, None if it is not there. Raises BadRequest if it is empty."""
        self._check_given(name)
        return self.query.query.get(name)

    def flag(self, name: str) -> bool:
        """A parameter as a truth value, False if it is not there. Raises BadRequest, if it is empty
        as well."""
        self._check_given(name)
        return self.query.flag(name)

    def word(self, name: str, known: type[_Word]) -> _Word | None:
        """A parameter as one of the words, None if it is not there. Raises BadRequest."""
        text = self.query.query.get(name)
        if text is None:
            return None
        try:
            return known(text)
        except ValueError as error:
            raise errors.BadRequest(f"{name}={text[:100]}: known are {', '.join(known)}") from error

    def _check_given(self, name: str) -> None:
        if self.query.query.get(name) == "":
            raise errors.BadRequest(f"{name}=: give a value, or leave it out")

    def only(self, *known: str) -> None:
        """Refuse parameters that nobody reads: most are typing errors."""
        if not self.scope["query_string"]:
            return
        unknown = [name for name in self.query.query if name != "namespace" and name not in known]
        if unknown:
            raise errors.BadRequest(
                f"unknown parameter {unknown[0][:100]!r}: known here are "
                f"{', '.join(('namespace', *known))}"
            )


def _check_once(raw: bytes) -> None:
    """What stands before us, a proxy say, may go by the other one."""
    seen = set()
    for name, _ in parse.parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if name in seen:
            raise errors.BadRequest(f"parameter {name[:100]!r} comes more than once: give it once")
        seen.add(name)


class Answer:
    """Where the answer to a call goes."""

    __slots__ = ("_call", "_send")

    def __init__(self, call: Call, send: asgi.Send) -> None:
        self._call = call
        self._send = send

    async def __call__(self, message: asgi.Message) -> None:
        """Send one message (ASGI)."""
        self._call.begun = True
        if self._call.warnings and message["type"] == "http.response.start":
            found = [notices.header(text) for text in self._call.warnings]
            message = {**message, "headers": [*message["headers"], *found]}
        await self._send(message)


class Resource:
    """A path: one handler for each method; those of GET answer HEAD too (uvicorn drops the body).

    An ASGI app, which is what Starlette's `Route` takes an instance of a class for.
    """

    def __init__(self, handlers: Mapping[str, "Respond"], *, path: str = "") -> None:
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers.setdefault("HEAD", handlers["GET"])
        self._unheeded = {name: notices.unheeded(name, path) for name in self._handlers}
        self._allow = ", ".join(sorted({*self._handlers, "OPTIONS"})).encode()

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Answer one request."""
        call = Call(scope, receive)
        answer = Answer(call, send)
        try:
            handler = self._handlers.get(call.method)
            if handler is not None:
                passed_over = self._unheeded[call.method]
                if not passed_over.isdisjoint(dict(scope["headers"])):
                    call.warnings += notices.of_headers(scope["headers"], passed_over)
                await handler(call, answer)
            elif call.method == "OPTIONS":
                await empty(answer, 204, ((b"allow", self._allow),))
            else:
                hint = "; curl sends PUT with -T alone: add -X POST" * (call.method == "PUT")
                raise errors.MethodNotAllowed(
                    f"{call.method} is not for {scope['path']}: it takes {self._allow.decode()}"
                    f"{hint}",
                    headers=((b"allow", self._allow),),
                )
        except serving.Gone:
            return
        except Exception as error:  # noqa: BLE001  the last place that can answer
            await _refuse(call, answer, error)


Respond = Callable[[Call, Answer], Awaitable[None]]


async def missing(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    """What is answered where no resource is."""
    del receive
    await asgi.problem(
        send, errors.NotFound(f"nothing is served at {scope['path']}: try /jobs or /files")
    )


async def _refuse(call: Call, answer: Answer, error: Exception) -> None:
    problem = as_problem(error)
    if problem.status >= 500 and str(problem) != str(error):
        facts = {"method": call.method, "path": call.scope["path"]}
        log.error("request failed", exc_info=error, extra=facts)
    if call.begun:
        await serving.cut(call.scope, call.receive)
    else:
        await asgi.problem(answer, problem)


def as_problem(error: Exception) -> errors.HttpError:
    """The answer that an error becomes."""
    match error:
        case errors.HttpError():
            return error
        case jobs_errors.NoSuchJob():
            return errors.NotFound(str(error))
        case jobs_errors.NotNow():
            return errors.Conflict(str(error))
        case jobs_errors.InvalidJob():
            return errors.UnprocessableContent(str(error))
        case jobs_errors.KeyUsed():
            return errors.UnprocessableContent(
                f"{error}, from another file or for another purpose: use a new key, or send the "
                "same again"
            )
        case jobs_errors.JobsStopped() | data_errors.StoreUnreachable():
            return errors.NotReady(str(error))
        case data_errors.InputTooLarge():
            facts = {"limit": error.limit, "seen": error.seen, "unit": error.unit}
            return errors.ContentTooLarge(
                str(error), members={"field": "file", **facts, "remedy": error.remedy}
            )
        case data_errors.InputRefused():
            members = {} if error.line is None else {"line": error.line}
            return errors.UnprocessableContent(str(error), members=members)
        case data_errors.StoreFull():
            return errors.InsufficientStorage(str(error))
        case data_errors.ObjectMissing():
            return errors.Gone(f"what it has made is no longer in the store: {error}")
        case data_errors.ObjectChanged():
            return errors.Conflict(str(error))
        case _:
            return errors.HttpError("it could not be done: see the server's log")


async def json(answer: Answer, data: bytes, *, status: int = 200, more: Headers = ()) -> None:
    """Send an encoded JSON document."""
    await asgi.whole(answer, status, JSON, data, more=more)


async def empty(answer: Answer, status: int, more: Headers = ()) -> None:
    """Send an answer without a body: 204, 304."""
    headers = [(b"cache-control", b"no-store"), *more]
    await answer({"type": "http.response.start", "status": status, "headers": headers})
    await asgi.body(answer, b"")
