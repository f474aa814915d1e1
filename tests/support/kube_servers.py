"""An API server for tests, ours or the real one, and plain HTTP to it.

`Server` is one of the two, whichever process runs it; `Http` sends the requests of one identity:
synchronous, on `http.client`, with one kept connection. Not a Kubernetes client: it sends exactly
what a test gives it and returns the raw response.
"""

import asyncio
import contextlib
import fcntl
import http.client
import json
import os
import secrets
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import uvloop
from hack.kube import access

from kilnwork.api import crd, kinds
from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster
from kilnwork.kube import config
from support import tls_connections, waiting

Kind = Literal["ours", "real"]
T = TypeVar("T")

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


_CUT = (
    http.client.RemoteDisconnected,
    BrokenPipeError,
    ConnectionResetError,
    ssl.SSLEOFError,
)
"""Errors of a kept connection that the server has closed, for example after 90 s idle."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `headers`: names as sent, looked up in any case."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json["message"])

    @property
    def reason(self) -> str | None:
        found: str | None = self.json.get("reason")
        return found

    @property
    def warnings(self) -> list[str]:
        return self.headers.get_all("Warning", [])

    def ok(self) -> Any:
        """Return the decoded body; the status must be 2xx."""
        assert 200 <= self.status < 300, f"{self.status}: {self.body[:2000]!r}"
        return self.json


class Change(dict[str, Any]):
    """One item of a watch, `{"type": …, "object": …}`."""

    @property
    def type(self) -> str:
        """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
        return str(self["type"])

    @property
    def object(self) -> Any:
        return self["object"]

    @property
    def name(self) -> str:
        return str(self["object"]["metadata"]["name"])


class Watch:
    """The changes of an open watch, in order."""

    def __init__(
        self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection
    ) -> None:
        self.headers = response.headers
        self._response = response
        self._connection = connection

    def next(self, *, timeout_s: float = 30.0) -> Change:
        """Return the next change; fails if the stream ends or none comes in time."""
        line = self._line(timeout_s)
        assert line, "the watch has ended"
        return Change(json.loads(line))

    def take(self, count: int, *, timeout_s: float = 30.0) -> list[tuple[str, str]]:
        """Return (type, name) of the next `count` changes of objects.

        Bookmarks are skipped: a server sends them whenever it likes.
        """
        found = [
            self.until(lambda change: change.type != "BOOKMARK", timeout_s=timeout_s)
            for _ in range(count)
        ]
        return [(change.type, change.name) for change in found]

    def until(self, wanted: Callable[[Change], bool], *, timeout_s: float = 30.0) -> Change:
        """Return the first change that satisfies `wanted`; earlier ones are skipped."""
        while True:
            change = self.next(timeout_s=timeout_s)
            if wanted(change):
                return change

    def rest(self, *, timeout_s: float = 30.0) -> list[Change]:
        """Return all changes until the server ends the stream."""
        found = []
        while line := self._line(timeout_s):
            found.append(Change(json.loads(line)))
        return found

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def _line(self, timeout_s: float) -> bytes:
        assert self._connection.sock is not None
        self._connection.sock.settimeout(timeout_s)
        return self._response.readline()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Credentials: a token, a client certificate, both or none."""

    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None


class Http:
    """Requests of one identity. Connections are opened when needed and kept."""

    def __init__(
        self, server: "Server", identity: Identity, *, headers: dict[str, str] | None = None
    ) -> None:
        self._kept: http.client.HTTPSConnection | None = None
        self.server = server
        self._identity = identity
        self.headers = dict(headers or {})
        if identity.token is not None:
            self.headers.setdefault("Authorization", f"Bearer {identity.token}")
        self._tls = ssl.create_default_context(cadata=server.ca)
        if identity.certificate is not None:
            self._tls.load_cert_chain(identity.certificate, identity.key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later request opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def acting(self, **headers: str) -> "Http":
        """Return the same identity with more headers on each request; `_` in their names stands for
        `-`.
        """
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return Http(self.server, self._identity, headers={**self.headers, **more})

    def impersonating(self, user: str, *groups: str) -> "Impersonator":
        """Return the same identity, impersonating another user."""
        return Impersonator(self.server, self._identity, user=user, groups=groups)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        **query: object,
    ) -> Response:
        """Send one request; a body that is neither bytes nor text is sent as JSON."""
        target, data, sent = self._prepare(path, body, headers, query)
        fresh = self._kept is None
        connection, self._kept = self._kept or self.connect(), None  # not kept if it breaks
        try:
            response = self._once(connection, method, target, data=data, headers=sent)
        except _CUT:
            connection.close()
            if fresh:
                raise
            connection = self.connect()  # the kept one had been closed by the server
            response = self._once(connection, method, target, data=data, headers=sent)
        self._kept = connection
        return response

    def get(self, path: str, **more: Any) -> Response:
        return self.send("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> Response:
        return self.send("POST", path, body, **more)

    def put(self, path: str, body: Any, **more: Any) -> Response:
        return self.send("PUT", path, body, **more)

    def patch(self, path: str, body: Any, *, form: str = MERGE, **more: Any) -> Response:
        """Send a PATCH; `form` is the media type."""
        headers = {"Content-Type": form, **(more.pop("headers", None) or {})}
        return self.send("PATCH", path, body, headers=headers, **more)

    def delete(self, path: str, body: Any = None, **more: Any) -> Response:
        return self.send("DELETE", path, body, **more)

    @contextlib.contextmanager
    def watch(
        self, path: str, *, headers: dict[str, str] | None = None, **query: object
    ) -> Iterator[Watch]:
        """Open a watch on a connection of its own."""
        target, _, sent = self._prepare(path, None, headers, {"watch": "1", **query})
        connection = self.connect()
        try:
            connection.request("GET", target, headers=sent)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            watch = Watch(response, connection)
            try:
                yield watch
            finally:
                response.close()
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPSConnection:
        """Open a new connection with this identity's certificate, for hand-written requests."""
        url = urllib.parse.urlsplit(self.server.url)
        assert url.hostname is not None
        return tls_connections.TlsConnection(url.netloc, tls=self._tls, timeout_s=30.0)

    def _prepare(
        self, path: str, body: Any, headers: dict[str, str] | None, query: dict[str, object]
    ) -> tuple[str, bytes | None, dict[str, str]]:
        pairs = [
            (name, one)
            for name, value in query.items()
            for one in (value if isinstance(value, list) else [value])
        ]
        mark = "&" if "?" in path else "?"
        target = f"{path}{mark}{urllib.parse.urlencode(pairs)}" if pairs else path
        data = body
        if isinstance(body, str):
            data = body.encode()
        elif body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        return target, data, {**sent, **self.headers, **(headers or {})}

    def _once(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        *,
        data: bytes | None,
        headers: dict[str, str],
    ) -> Response:
        connection.request(method, target, body=data, headers=headers)
        response = connection.getresponse()
        return Response(response.status, response.headers, response.read())


class Impersonator(Http):
    """An identity that impersonates a user in groups. Group headers repeat, so they are sent by
    hand.
    """

    def __init__(
        self, server: "Server", identity: Identity, *, user: str, groups: Sequence[str]
    ) -> None:
        super().__init__(server, identity, headers={"Impersonate-User": user})
        self._groups = groups

    def _once(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        *,
        data: bytes | None,
        headers: dict[str, str],
    ) -> Response:
        connection.putrequest(method, target)
        for name, value in headers.items():
            connection.putheader(name, value)
        for group in self._groups:
            connection.putheader("Impersonate-Group", group)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        return Response(response.status, response.headers, response.read())


class Kubectl:
    """kubectl as administrator, in one namespace."""

    def __init__(self, program: Path, kubeconfig: Path, *, home: Path, namespace: str) -> None:
        self._argv = [str(program), f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._argv, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=90,
            check=False,
        )

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which must succeed; return its standard output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which must fail; return its standard error."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, done.stdout + done.stderr
        return done.stderr


class Server:
    """A running API server: ours or the real one, with an administrator's kubeconfig."""

    def __init__(self, kind: Kind, kubeconfig: Path) -> None:
        self.kind: Kind = kind
        self.kubeconfig = kubeconfig
        found = config.load(kubeconfig)
        self.url = found.server
        self.ca = found.ca_data or (found.ca_file.read_text() if found.ca_file else "")
        self._token = found.token
        self._directory = kubeconfig.parent

    def admin(self) -> Http:
        """Return the administrator, a member of `system:masters`."""
        if self.kind == "ours":
            return self.bearer(self._token)
        pki = self._directory / "pki"
        return Http(self, Identity(certificate=pki / "admin.crt", key=pki / "admin.key"))

    def bearer(self, token: str | None) -> Http:
        """Return the identity with this token; anonymous for None."""
        return Http(self, Identity(token=token))

    def forget(self) -> None:
        """Drop the history of changes: watches from before now are refused with 410.

        Waits while tests in other processes need the history (`remembering`).
        """
        with self._history(fcntl.LOCK_EX):
            access.Attached(self._directory).compact()

    def remembering(self) -> contextlib.AbstractContextManager[None]:
        """Return a lock during which no test calls `forget`."""
        return self._history(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def _history(self, how: int) -> Iterator[None]:
        with (self._directory / "history.lock").open("a") as file:
            fcntl.flock(file, how)
            yield


class Ours(Server):
    """The embedded control plane, on an event loop in a thread of this process."""

    def __init__(self, directory: Path) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="control plane")
        self._thread.start()
        settings = cluster.ControlPlaneSettings(
            data_dir=directory,
            port=0,
            workdir=directory,
            node_name="local",
            installed=embedded_crds.EXTENSIONS,
        )
        self.plane = cluster.ControlPlane(settings)
        self._node = False
        try:
            self.run(self.plane.start())
        except BaseException:
            self.stop()
            raise
        super().__init__("ours", self.plane.kubeconfig)

    def run(self, work: Coroutine[Any, Any, T], *, timeout_s: float = 30.0) -> T:
        """Run a coroutine on the loop of the control plane."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def node(self) -> None:
        """Start the local node, `local`, unless it runs."""
        if not self._node:
            self.run(self.plane.start_node())
            self._node = True

    def forget(self) -> None:
        """Drop the changes that the store keeps for watches."""

        async def drop() -> None:
            self.plane.writer.store.drop_log()

        self.run(drop())

    def stop(self) -> None:
        """Stop everything and end the thread."""
        try:
            self.run(self.plane.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()


@contextlib.contextmanager
def ours(directory: Path) -> Iterator[Server]:
    """Run a new embedded control plane with its data in `directory`, without a node."""
    made = Ours(directory)
    try:
        yield made
    finally:
        made.stop()


def real(directory: Path) -> Server:
    """Return the real control plane that runs in `directory`, with our kinds installed."""
    server = Server("real", directory / "admin.kubeconfig")
    with server.admin() as admin:
        for definition in crd.crds().values():
            response = admin.post(CRDS, definition)
            assert response.status in (201, 409), response.body
        for kind in kinds.OURS:
            path = f"/apis/{kind.api_version}/{kind.plural}"
            waiting.wait_until(partial(_responds, admin, path), what=f"{kind.plural} are served")
    return server


def _responds(http_: Http, path: str) -> bool:
    return http_.get(path).status == 200


def fresh_name(prefix: str) -> str:
    """Return a name that no other test uses, on a server that several tests share."""
    return f"{prefix}-{secrets.token_hex(4)}"
