"""Conversion of errors to responses of the REST API: problem details (RFC 9457), the same for all
its apps.

Used by all apps of this package. `errors` defines the errors that are responses; this module maps
the errors of other packages to them.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from kilnwork.data import errors as data_errors
from kilnwork.jobs import errors as jobs_errors
from kilnwork.kit import asgi
from kilnwork.kube import errors as kube_errors
from kilnwork.server import errors

log = logging.getLogger(__name__)

_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Responses are never cached, and browsers never guess their type."""

Translate = Callable[[Exception], errors.HttpError]


def response(send: asgi.Send, *, extra: Callable[[], asgi.Headers] | None = None) -> asgi.Response:
    """Return a response with the headers that all responses of this package have."""
    return asgi.Response(send, headers=_HEADERS, extra=extra)


async def send(response: asgi.Response, error: errors.HttpError) -> None:
    """Send the problem details of an error. `message` repeats `detail` for older clients."""
    document = {
        "type": error.type,
        "title": error.reason,
        "status": error.status,
        "reason": error.reason,
        "detail": str(error),
        "message": str(error),
        **error.members,
    }
    data = msgspec.json.encode(document) + b"\n"
    await response.send(error.status, "application/problem+json", data, headers=error.headers)


def from_error(error: Exception) -> errors.HttpError:
    """Return the HTTP error for an exception."""
    match error:
        case errors.HttpError():
            return error
        case asgi.BadParameter():
            return errors.BadRequest(str(error))
        case asgi.BodyTooLarge():
            facts = {"field": "body", "limit": error.limit, "seen": error.seen}
            remedy = "send it in pieces"
            return errors.ContentTooLarge(str(error), members={**facts, "remedy": remedy})
        case asgi.BodyStalled():
            return errors.RequestTimeout(
                f"{error}: send it again; uploads to /files can go on where they broke off"
            )
        case kube_errors.KubeError():
            return errors.NotReady(f"the API server does not say: {error}")
        case jobs_errors.JobsError():
            return _from_jobs(error)
        case data_errors.DataError():
            return _from_data(error)
        case _:
            return errors.HttpError("it could not be done: see the server's log")


def _from_jobs(error: jobs_errors.JobsError) -> errors.HttpError:
    match error:
        case jobs_errors.NoSuchJob():
            return errors.NotFound(str(error))
        case jobs_errors.NotNow() | jobs_errors.SeveralJobs():
            return errors.Conflict(str(error))
        case jobs_errors.InvalidJob():
            return errors.UnprocessableContent(str(error))
        case jobs_errors.KeyUsed():
            return errors.UnprocessableContent(
                f"{error}, from another file or for another purpose: use a new key, or send the "
                "same again"
            )
        case jobs_errors.JobsStopped():
            return errors.NotReady(str(error))
    return errors.HttpError("it could not be done: see the server's log")


def _from_data(error: data_errors.DataError) -> errors.HttpError:
    match error:
        case data_errors.StoreUnreachable():
            return errors.NotReady(str(error))
        case data_errors.InputTooLarge():
            facts = {"limit": error.limit, "seen": error.seen, "unit": error.unit}
            return errors.ContentTooLarge(
                str(error), members={"field": "file", **facts, "remedy": error.remedy}
            )
        case data_errors.InputRefused():
            members = {} if error.line is None else {"line": error.line}
            return errors.UnprocessableContent(str(error), members=members)
        case data_errors.StoreFull() | data_errors.BlobNotWritten():
            return errors.InsufficientStorage(str(error))
        case data_errors.ObjectMissing():
            return errors.Gone(f"what it has made is no longer in the store: {error}")
        case data_errors.ObjectChanged():
            return errors.Conflict(str(error))
    return errors.HttpError("it could not be done: see the server's log")


async def respond(
    work: Awaitable[None],
    request: asgi.Request,
    response: asgi.Response,
    *,
    translate: Translate = from_error,
) -> None:
    """Await the handler of a request, and send its error if it raises one.

    If the response has begun, the connection is cut instead. Nothing is sent to a client that has
    disconnected.
    """
    try:
        await work
    except asgi.Disconnected:
        return
    except Exception as error:  # noqa: BLE001  the last place that can respond
        await _fail(request, response, error, translate(error))


async def _fail(
    request: asgi.Request,
    response: asgi.Response,
    error: Exception,
    problem: errors.HttpError,
) -> None:
    if problem.status >= 500 and str(problem) != str(error):
        facts = {"method": request.method, "path": request.path}
        log.error("request failed", exc_info=error, extra=facts)
    if response.started:
        await request.cut()
    else:
        await send(response, problem)
