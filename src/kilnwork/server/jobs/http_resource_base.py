"""Requests and resources of the Jobs API, between Starlette's router and the handlers.

Used by `app` and by all handlers. A `Resource` is a path with its methods; it responds to OPTIONS,
and with 405 and `Allow` (RFC 9110 §15.5.6) to unsupported methods.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from urllib import parse

from kilnwork.api import names
from kilnwork.kit import asgi
from kilnwork.server import errors, problems
from kilnwork.server.jobs import ignored_fields

DEFAULT_NAMESPACE = "default"
RESOURCE = "jobs"

_Word = TypeVar("_Word", bound=enum.StrEnum)


class JobRequest(asgi.Request):
    """A request to the Jobs API. `warnings`: texts about ignored settings, which are sent with the
    response.

    A parameter may occur only once, and may not be empty.
    """

    __slots__ = ("_given", "warnings")

    def __init__(self, scope: asgi.Scope, receive: asgi.Receive) -> None:
        super().__init__(scope, receive)
        self.warnings: list[str] = []
        self._given: Mapping[str, str] | None = None

    def warning_headers(self) -> asgi.Headers:
        """Return the warnings as headers."""
        return [ignored_fields.header(text) for text in self.warnings]

    @property
    def query(self) -> Mapping[str, str]:
        """Parameters of the URL. Raises BadRequest if a name occurs twice."""
        if self._given is None:
            found = super().query
            raw = self.scope["query_string"]
            if len(found) <= raw.count(b"&"):
                _check_once(raw)
            self._given = found
        return self._given

    @property
    def namespace(self) -> str:
        """The namespace of the request: the parameter `namespace`, by default `default`. Raises
        BadRequest if it is not a valid name.
        """
        if not self.scope["query_string"]:
            return DEFAULT_NAMESPACE
        name = self.query.get("namespace", DEFAULT_NAMESPACE)
        if name != DEFAULT_NAMESPACE and not names.is_dns_label(name):
            raise errors.BadRequest(
                f"namespace={name[:100]!r}: a namespace is up to 63 lower-case letters, digits "
                "and dashes"
            )
        return name

    @property
    def user_name(self) -> str:
        """The caller's name in Kubernetes; "" for an anonymous caller."""
        return str(getattr(self.user, "name", ""))

    def param(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.scope["path_params"][name])

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """Return a parameter as a whole number, or None if it is absent. Raises BadRequest,
        BadParameter."""
        self._check_given(name)
        return super().number(name, least=least, most=most)

    def text(self, name: str) -> str | None:
        """Return a parameter as text, or None if it is absent. Raises BadRequest."""
        self._check_given(name)
        return self.query.get(name)

    def flag(self, name: str) -> bool:
        """Return a parameter as a boolean, False if it is absent. Raises BadRequest,
        BadParameter."""
        self._check_given(name)
        return super().flag(name)

    def choice(self, name: str, known: type[_Word]) -> _Word | None:
        """Return a parameter as a member of the enumeration `known`, or None if it is absent.
        Raises BadRequest."""
        text = self.query.get(name)
        if text is None:
            return None
        try:
            return known(text)
        except ValueError as error:
            raise errors.BadRequest(f"{name}={text[:100]}: known are {', '.join(known)}") from error

    def _check_given(self, name: str) -> None:
        if self.query.get(name) == "":
            raise errors.BadRequest(f"{name}=: give a value, or leave it out")

    def check_known(self, *known: str) -> None:
        """Raise BadRequest if there are unknown parameters, most of which are typing errors."""
        if not self.scope["query_string"]:
            return
        unknown = [name for name in self.query if name != "namespace" and name not in known]
        if unknown:
            raise errors.BadRequest(
                f"unknown parameter {unknown[0][:100]!r}: known here are "
                f"{', '.join(('namespace', *known))}"
            )


def _check_once(raw: bytes) -> None:
    """Raise BadRequest if a name occurs twice in the query. A proxy in front of us may use the
    other value.
    """
    seen = set()
    for name, _ in parse.parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if name in seen:
            raise errors.BadRequest(f"parameter {name[:100]!r} comes more than once: give it once")
        seen.add(name)


Handler = Callable[[JobRequest, asgi.Response], Awaitable[None]]


class Resource:
    """A path of the API, with one handler per method; the handler of GET serves HEAD too (uvicorn
    drops the body).

    This is an ASGI app: Starlette's `Route` treats an instance of a class as one.
    """

    def __init__(self, handlers: Mapping[str, Handler], *, path: str = "") -> None:
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers.setdefault("HEAD", handlers["GET"])
        self._unheeded = {name: ignored_fields.unheeded(name, path) for name in self._handlers}
        self._allow = ", ".join(sorted({*self._handlers, "OPTIONS"})).encode()

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Pass a request to the handler of its method, and send the errors of the handler."""
        request = JobRequest(scope, receive)
        response = problems.response(send, extra=request.warning_headers)
        handler = self._handlers.get(request.method)
        if handler is None:
            handler = self._other
        elif not self._unheeded[request.method].isdisjoint(request.first_headers):
            unheeded = self._unheeded[request.method]
            request.warnings += ignored_fields.of_headers(scope["headers"], unheeded)
        await problems.respond(handler(request, response), request, response)

    async def _other(self, request: JobRequest, response: asgi.Response) -> None:
        if request.method == "OPTIONS":
            await response.empty(204, ((b"allow", self._allow),))
            return
        hint = "; curl sends PUT with -T alone: add -X POST" * (request.method == "PUT")
        raise errors.MethodNotAllowed(
            f"{request.method} is not for {request.path}: it takes {self._allow.decode()}{hint}",
            headers=((b"allow", self._allow),),
        )


async def send_not_found(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    """Send 404 for a path without a resource."""
    del receive
    found = errors.NotFound(f"nothing is served at {scope['path']}: try /jobs or /files")
    await problems.send(problems.response(send), found)
