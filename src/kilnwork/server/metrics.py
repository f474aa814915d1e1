"""Metrics of the server: `/metrics` in the Prometheus text format (version 0.0.4).

These are only numbers that the server has anyway, collected on request. Only callers who may list
Tasks in all namespaces may read them, since they contain names of namespaces and clusters.
"""

from collections.abc import Callable, Iterable

import msgspec

from kilnwork.kit import asgi
from kilnwork.server import errors, ports, problems

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a metric. `kind` is gauge or counter; samples of the same name must follow each
    other.
    """

    name: str
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    kind: str = "gauge"


Collect = Callable[[], Iterable[Sample]]


def app(collect: Collect, rights: ports.Rights) -> asgi.App:
    """Return the ASGI app of `/metrics`. It calls `collect` for each request."""

    async def show(request: asgi.Request, response: asgi.Response) -> None:
        if request.user is None:
            raise errors.Unauthorized
        refused = await rights.refusal(request.user, ports.Question(verb="list", namespace=""))
        if refused is not None:
            raise errors.Forbidden(refused)
        await response.send(200, CONTENT_TYPE, text(collect()).encode())

    async def serve(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request, response = asgi.Request(scope, receive), problems.response(send)
        await problems.respond(show(request, response), request, response)

    return serve


def text(samples: Iterable[Sample]) -> str:
    """Return the samples in the Prometheus text format."""
    lines: list[str] = []
    last = ""
    for sample in samples:
        if sample.name != last:
            lines += [
                f"# HELP {sample.name} {sample.help}",
                f"# TYPE {sample.name} {sample.kind}",
            ]
            last = sample.name
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
        braces = f"{{{labels}}}" if labels else ""
        lines.append(f"{sample.name}{braces} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
