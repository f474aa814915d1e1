"""Requests about Jobs, JobConfigs and SyncSets to the API server of a session.

Used by `job_runs` and `set_runs`. Requests block; a refusal of the server becomes an error with the
server's message. They do not use the channel, which carries calls only.
"""

import hashlib
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib import parse

import msgspec

from kilnwork.api import api_resources, attempts
from kilnwork.endpoints import manager_client
from kilnwork.kit import errors as kit_errors
from kilnwork.kit import http_types
from kilnwork.sdk import errors, pickle_encoding, serialization, session

_RESPONSES = (200, 201, 204, 400, 401, 403, 404, 409, 422)
"""Status codes that are final; after any other status the request is sent again."""

NO_CONTENT, NOT_FOUND, CONFLICT = 204, 404, 409

PATIENCE_S = 60.0
"""How many seconds a request is repeated while the API server is unreachable."""

_FAILURES = manager_client.Failures(errors.KilnError, errors.KilnError, errors.KilnError)


class RequestRefused(kit_errors.KilnError):
    """The API server refused a request. `status`: the HTTP status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Connector(manager_client.Connector, Protocol):
    """A connector to an API server or to a manager (`endpoints.connector`)."""

    def path(self, path: str) -> str:
        """Return a path of the server prefixed with the path of its URL."""
        ...


class ApiServer:
    """A client of a session's API server in one namespace, and of its manager, which has the
    results.
    """

    def __init__(
        self, to: Connector, manager: Connector, *, namespace: str, blobs: pickle_encoding.Blobs
    ) -> None:
        self.namespace = namespace
        self._to, self._manager, self._blobs = to, manager, blobs
        self._client, self._results = _client(to), _client(manager)

    def get(self, kind: api_resources.Resource, name: str) -> dict[str, Any]:
        """Return an object. Raises RequestRefused."""
        return self._send("GET", self._path(kind, name))

    def names(self, kind: api_resources.Resource) -> list[str]:
        """Return the names of the first 20 objects of a kind. Raises RequestRefused."""
        found = self._send("GET", self._path(kind), query={"limit": "20"})
        return [str(item["metadata"]["name"]) for item in found["items"]]

    def create(self, kind: api_resources.Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object with the name in `body` and return it. Raises RequestRefused.

        If an earlier try of this request has already created the object, that object is returned.
        """
        repeated = False

        def read(response: manager_client.OpenResponse) -> http_types.ClientResponse:
            nonlocal repeated
            repeated = response.repeated
            return _whole(response)

        response = self._respond("POST", self._path(kind), read, body=body)
        if response.status == CONFLICT and repeated:
            return self.get(kind, str(body["metadata"]["name"]))
        return _document(response)

    def replace(
        self, kind: api_resources.Resource, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace an object by its changed version and return it.

        Raises RequestRefused, with CONFLICT if the object has changed since it was read.
        """
        return self._send("PUT", self._path(kind, name), body=body)

    def patch(
        self, kind: api_resources.Resource, name: str, change: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Change an object by a merge patch (RFC 7386) and return it. Raises RequestRefused."""
        return self._send("PATCH", self._path(kind, name), body=change)

    def result(self, task: str, *, digest: str = "") -> Any:
        """Return the result of a task by its id or name.

        Raises RequestRefused for a task that has no result, or whose result has another digest than
        `digest`: names are not unique.
        """
        response = self._ask_manager(f"tasks/{parse.quote(task, safe='')}/result")
        if digest and digest != f"sha256:{hashlib.sha256(response.body).hexdigest()}":
            raise RequestRefused(f"task {task} has another result by now", status=CONFLICT)
        media_type = response.headers.get("content-type", "").partition(";")[0]
        payload = attempts.Payload(media_type, response.body)
        return (
            None
            if response.status == NO_CONTENT
            else serialization.unpack_value(payload, self._blobs)
        )

    def indexes(self, job: str) -> Iterator[dict[str, Any]]:
        """Yield the indexes of a Job by number, each in the form of the `/v1` API. Raises
        RequestRefused.
        """
        query: dict[str, str] = {}
        while True:
            path = f"jobs/{parse.quote(job, safe='')}/indexes"
            page = self._ask_manager(path, query=query).document()
            yield from page["items"]
            if "after" not in page:
                return
            query = {"after": str(page["after"])}

    def set_result(self, name: str, generation: int) -> Any:
        """Return the result of a SyncSet's flow.

        Raises RequestRefused if the generation has no result.
        """
        path = f"syncsets/{parse.quote(name, safe='')}/result"
        response = self._ask_manager(path, query={"generation": str(generation)})
        return msgspec.json.decode(response.body)

    def _ask_manager(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> http_types.ClientResponse:
        base = f"/v1/namespaces/{parse.quote(self.namespace, safe='')}"
        request = http_types.ClientRequest(
            method="GET", path=self._manager.path(f"{base}/{path}"), query=query, accept="*/*"
        )
        response = self._results.send(request, _RESPONSES, _whole)
        if not response.ok:
            raise RequestRefused(response.message(), status=response.status)
        return response

    def _path(self, kind: api_resources.Resource, name: str | None = None) -> str:
        base = kind.base(parse.quote(self.namespace, safe=""))
        return self._to.path(base if name is None else f"{base}/{parse.quote(name, safe='')}")

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return _document(self._respond(method, path, _whole, body=body, query=query))

    def _respond(
        self,
        method: str,
        path: str,
        read: Any,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> http_types.ClientResponse:
        request = http_types.ClientRequest(
            method=method,
            path=path,
            query=query,
            body=None if body is None else msgspec.json.encode(body),
            content_type=http_types.MERGE_PATCH if method == "PATCH" else http_types.JSON,
        )
        response: http_types.ClientResponse = self._client.send(request, _RESPONSES, read)
        return response


_opened: weakref.WeakKeyDictionary[session.Session, ApiServer] = weakref.WeakKeyDictionary()
"""The API server of each session, so that all runs of a session share its connections."""


def of_session(of: str) -> ApiServer:
    """Return the API server of the current session. `of`: the operation, for error messages.

    Raises NoSession, and ConfigurationError if the session has no API server.
    """
    here = session.current()
    if here.servers is not None:
        if here not in _opened:
            to, manager = here.servers()
            _opened[here] = ApiServer(to, manager, namespace=here.namespace, blobs=here.blobs)
        return _opened[here]
    if here.in_slot and not here.functions_only:
        raise errors.ConfigurationError(
            f"{of}: a task has no access to the API server: submit Jobs in the program that is "
            "connected, or let the Job depend on another (options(depends_on=[…])); what is to run "
            "within this task is a task function"
        )
    raise errors.ConfigurationError(
        f"{of}: kiln.start() and kiln.testing.inline() have no Jobs: use kiln.connect() to a "
        "`kiln up` or a manager in a cluster, or call the function itself"
    )


def _client(to: Connector) -> manager_client.Client:
    return manager_client.Client(to, _FAILURES, what="API", patience_s=PATIENCE_S)


def _whole(response: manager_client.OpenResponse) -> http_types.ClientResponse:
    head = response.head
    return http_types.ClientResponse(
        head.status, head.reason, response.connection.read(), head.headers
    )


def _document(response: http_types.ClientResponse) -> dict[str, Any]:
    if response.status == NOT_FOUND and not response.is_kubernetes_status():
        raise RequestRefused(
            "this server has no objects: connect to the kubeconfig or the data directory of a "
            "`kiln up`, or to the kubeconfig of a cluster where `kiln install` was applied",
            status=0,
        )
    if not response.ok:
        raise RequestRefused(response.message(), status=response.status)
    return response.document()
