"""HTTP sources: files at HTTP addresses, with ETag and Range (RFC 9110 §8.8, §14).

Used by the agent. A server cannot list its files, so the order names them, or the source is one
file. Credentials come from mounted Secrets, are read for each request, and are sent to the source's
own server only, not after a redirect to another. No message contains them.
"""

import base64
import contextlib
import ssl
from collections.abc import Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import NamedTuple
from urllib import parse

from kilnwork.data import errors
from kilnwork.data.pond import manifest, origins
from kilnwork.kit import egress, http1_client, snapshot_path_validation
from kilnwork.pond import connections

MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
GONE = frozenset({404, 410})
_NO_HEAD = frozenset({405, 501})
_LISTERS = 8
"""Maximum number of HEAD requests at the same time."""

_STRONG = 'etag:"'


class HttpSource:
    """The file at `uri`, or the files below it if it ends with a slash.

    `secrets`: a directory with `token`, or `username` and `password`, and optionally `ca.crt`; they
    may appear later. `allow`: the allowed addresses, as `egress.parse_allowance` reads them; None:
    any address, for a server that no user has named. `tls_name`: the name that the certificate must
    have, "" for the host.
    """

    def __init__(
        self,
        name: str,
        uri: str,
        *,
        secrets: Path | None = None,
        allow: Sequence[str] | None = (),
        tls_name: str = "",
    ) -> None:
        self.name = name
        self._uri = uri
        self._secrets = secrets
        self._context: tuple[str, ssl.SSLContext] | None = None
        self._tls_name = tls_name
        policy = None
        if allow is not None:
            policy = egress.Policy(allowed=[egress.parse_allowance(one) for one in allow])
        self._connections = connections.Connections(policy, self._tls)

    def list(self, selection: origins.Selection) -> Sequence[origins.ListedFile]:
        """Return the selected files, with the facts that a HEAD request for each returns."""
        if selection.glob:
            raise errors.SourceRefused(
                f"source {self.name}: an HTTP source cannot be listed for glob "
                f"{selection.glob!r}: name its files in paths"
            )
        paths = selection.paths
        if not paths:
            if self._uri.endswith("/"):
                raise errors.SourceRefused(
                    f"source {self.name}: {self._shown()} is a directory, which HTTP does not "
                    "list: name its files in paths"
                )
            paths = (parse.unquote(parse.urlsplit(self._uri).path.rpartition("/")[2]) or "data",)
        with futures.ThreadPoolExecutor(_LISTERS) as pool:
            return sorted(pool.map(self._head, paths))

    def open(self, path: str, *, offset: int, stamp: str) -> origins.Content:
        headers = {}
        if offset and stamp.startswith(_STRONG):
            headers = {"Range": f"bytes={offset}-", "If-Range": stamp.removeprefix("etag:")}
        stack = contextlib.ExitStack()
        with stack:
            exchange = stack.enter_context(self._send(path, "GET", headers))
            status = exchange.head.status
            if status == 416:  # the file is shorter now
                stack.close()
                exchange = stack.enter_context(self._send(path, "GET", {}))
                status = exchange.head.status
            self._check(path, exchange)
            return _Content(exchange, self._place(path, exchange.head), stack.pop_all())

    def close(self) -> None:
        self._connections.close()

    def _head(self, path: str) -> origins.ListedFile:
        if why := snapshot_path_validation.problem(path):
            raise errors.SourceRefused(f"source {self.name}: path {path!r} {why}")
        with self._send(path, "HEAD", {}) as exchange:
            head = exchange.head
            if head.status not in _NO_HEAD:
                self._check(path, exchange)
        if head.status in _NO_HEAD:
            with self.open(path, offset=0, stamp="") as content:
                return origins.ListedFile(path, content.total, manifest.PLAIN, content.stamp)
        return origins.ListedFile(path, _length(head), manifest.PLAIN, stamp_of(head))

    @contextlib.contextmanager
    def _send(
        self, path: str, method: str, headers: dict[str, str]
    ) -> Iterator[connections.Exchange]:
        """Send a request, follow redirects, and yield the final response."""
        own = self._address(path)
        at = own
        for _ in range(MAX_REDIRECTS + 1):
            sent = {"Host": at.authority, "Accept-Encoding": "identity", **headers}
            if at.server == own.server:
                sent.update(self._credentials())
            request = connections.Request(at.server, at.target, sent, method)
            with self._connections.send(request) as exchange:
                if exchange.head.status not in _REDIRECTS:
                    yield exchange
                    return
                at = self._redirected(at, exchange.head)
                exchange.connection.read()
        raise errors.SourceRefused(
            f"source {self.name}: {path} redirects more than {MAX_REDIRECTS} times"
        )

    def _address(self, path: str) -> "Address":
        below = parse.quote(path) if self._uri.endswith("/") else ""
        found = _address(self._uri + below)
        if not self._tls_name:
            return found
        return found._replace(server=found.server._replace(tls_name=self._tls_name))

    def _redirected(self, at: "Address", head: http1_client.ResponseHead) -> "Address":
        location = head.headers.get("location", "")
        try:
            uri = parse.urljoin(at.uri, location)
        except ValueError as error:
            raise errors.SourceRefused(
                f"source {self.name}: a redirect leads to {location[:80]!r}: {error}"
            ) from error
        secure = at.server.tls_name and not uri.startswith("https://")
        if secure or not uri.startswith(("https://", "http://")):
            raise errors.SourceRefused(
                f"source {self.name}: a redirect from https leads to {uri[:30]!r}"
            )
        return _address(uri)

    def _credentials(self) -> dict[str, str]:
        token = self._secret("token")
        if token:
            return {"Authorization": f"Bearer {token}"}
        user = self._secret("username")
        if not user:
            return {}
        pair = base64.b64encode(f"{user}:{self._secret('password')}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    def _secret(self, key: str) -> str:
        if self._secrets is None:
            return ""
        try:
            return (self._secrets / key).read_text().strip()
        except OSError:
            return ""

    def _tls(self) -> ssl.SSLContext:
        """Return a context that trusts the system's authorities and the source's `ca.crt`."""
        own = self._secret("ca.crt")
        if self._context is None or self._context[0] != own:
            self._context = own, self._new_context(own)
        return self._context[1]

    def _new_context(self, own: str) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if own:
            context.load_verify_locations(cadata=own)
        return context

    def _check(self, path: str, exchange: connections.Exchange) -> None:
        head = exchange.head
        status, what = head.status, f"source {self.name}: {path}"
        if status in (200, 206):
            coding = head.headers.get("content-encoding", "identity")
            if coding != "identity":
                raise errors.SourceRefused(f"{what} is sent with Content-Encoding {coding!r}")
            return
        if status in (401, 403):
            raise errors.SourceRefused(
                f"{what} may not be read ({status}): look at spec.sources[].secretName of the "
                "DataPond, whose Secret needs token, or username and password"
            )
        if status in GONE:
            raise errors.SourceMissing(f"{what} is not there ({status})")
        if status in _LATER:
            raise errors.SourceUnreachable(f"{what} cannot be read now ({status})")
        raise errors.SourceRefused(f"{what} cannot be read ({status} {head.reason[:80]})")

    def _place(self, path: str, head: http1_client.ResponseHead) -> "_Place":
        stamp = stamp_of(head)
        if head.status == 200:
            return _Place(0, _length(head), stamp)
        unit, _, rest = head.headers.get("content-range", "").partition(" ")
        span, _, total = rest.partition("/")
        start = span.partition("-")[0]
        if unit != "bytes" or not start.isdecimal() or not (total.isdecimal() or total == "*"):
            raise errors.SourceRefused(
                f"source {self.name}: {path} comes with Content-Range {unit[:20]!r}"
            )
        return _Place(int(start), int(total) if total.isdecimal() else None, stamp)

    def _shown(self) -> str:
        """Return the address without its query, which may contain a secret."""
        return self._uri.partition("?")[0]


class _Place(NamedTuple):
    start: int
    total: int | None
    stamp: str


class Address(NamedTuple):
    """An address from which a file is requested."""

    uri: str
    server: connections.Server
    authority: str
    target: str


class _Content(origins.Content):
    def __init__(
        self, exchange: connections.Exchange, place: _Place, held: contextlib.ExitStack
    ) -> None:
        self.start, self.total, self.stamp = place
        self._connection = exchange.connection
        self._held = held

    def pieces(self) -> Iterator[bytes | memoryview]:
        try:
            yield from self._connection.pieces()
        except (OSError, http1_client.BadResponse) as error:
            raise errors.SourceUnreachable(f"the connection ended: {error}") from error

    def close(self) -> None:
        self._held.close()


def stamp_of(head: http1_client.ResponseHead) -> str:
    """Return a validator, which is equal for equal content.

    It is the ETag, else Last-Modified with the length, else "".
    """
    etag = head.headers.get("etag", "")
    if etag:
        return f"etag:{etag}"
    modified = head.headers.get("last-modified", "")
    length = head.headers.get("content-length", "")
    return f"modified:{modified} {length}" if modified else ""


def _length(head: http1_client.ResponseHead) -> int | None:
    text = head.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _address(uri: str) -> Address:
    try:
        parts = parse.urlsplit(uri)
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or (443 if secure else 80)
    except ValueError as error:
        raise errors.SourceRefused(f"{uri[:80]!r} has no port that is one") from error
    if not host or parts.username is not None:
        raise errors.SourceRefused(
            "an address of a source needs a host and must hold no password: use secretName"
        )
    path = parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    target = f"{path}?{parts.query}" if parts.query else path
    server = connections.Server(host, port, host if secure else "")
    return Address(uri, server, parts.netloc, target)
