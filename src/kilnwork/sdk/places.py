"""Where a dispatcher runs to which a driver can connect: found by folder, kubeconfig or URL.

Used by `remote`. A place answers two questions: what to show as a credential, and which Unix socket
to connect to. A server (`kiln up`) is asked over HTTP, with the kubeconfig's own TLS and token; the
folder of a `kiln.start(FOLDER)` is read.
"""

import http.client
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib import parse

import msgspec

from kilnwork.kit import errors, paths
from kilnwork.kube import config, tls
from kilnwork.sdk import endpoints

_ASK_S = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_START = "start one with `kiln up`, or do without: kiln.start() needs none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The folder of a `kiln.start(FOLDER)`."""

    folder: Path
    namespace: str = "default"

    def credential(self) -> str:
        """The token that the folder holds."""
        return endpoints.token(self.folder)

    def socket(self) -> str:
        """The same for all who serve this folder one after the other."""
        found = endpoints.read(self.folder)
        return (found and found.channel.unix) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A `kiln up`, by what a kubeconfig says. `load` reads that again: tokens are renewed."""

    settings: config.Config
    load: Callable[[], config.Config]

    @property
    def namespace(self) -> str:
        """What a session without one means."""
        return self.settings.namespace

    def socket(self) -> str:
        """The dispatcher's. Raises ConfigurationError when it is not on this machine."""
        path = str(self.ask("/v1/endpoints")["channel"]["unix"])
        if not Path(path).is_socket():
            raise errors.ConfigurationError(
                f"{self.settings.server} is on another machine, or its sockets are not to be seen "
                "here: sessions over the network come later"
            )
        return path

    def credential(self) -> str:
        """The bearer token. Raises ConfigurationError when there is none."""
        now = self.load()
        if now.token:
            return now.token
        if now.token_file is None:
            raise errors.ConfigurationError(
                f"the kubeconfig for {now.server} has no token, which drivers need: "
                "`kiln token ACCOUNT` makes one"
            )
        return now.token_file.read_text().strip()

    def ask(self, path: str) -> dict[str, Any]:
        """A document of `/v1`. Raises ConfigurationError with what to do."""
        status, document = self._get(path)
        if status == http.client.OK:
            return document
        if status == http.client.UNAUTHORIZED:
            raise errors.ConfigurationError(
                f"{self.settings.server} does not accept the token: take the kubeconfig that "
                "`kiln up` prints, or its data directory"
            )
        raise errors.ConfigurationError(str(document.get("detail") or document.get("message")))

    def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.credential()}"}
        connection = self._connection()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, msgspec.json.decode(answer.read(), type=dict[str, Any])
        except (OSError, http.client.HTTPException) as error:
            raise errors.ConfigurationError(
                f"{self.settings.server} does not answer ({error}): is `kiln up` running?"
            ) from error
        except msgspec.MsgspecError as error:
            raise errors.ConfigurationError(
                f"{self.settings.server} is no kiln server: it has no /v1"
            ) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = parse.urlsplit(self.settings.server)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.netloc, timeout=_ASK_S)
        context = tls.context(self.settings)
        return http.client.HTTPSConnection(parts.netloc, timeout=_ASK_S, context=context)


def find(where: str | os.PathLike[str] | None) -> Home | Server:
    """The place that a user means; None: that of the environment. Raises ConfigurationError."""
    if where is None:
        return _by_environment()
    text = os.fspath(where)
    if text.startswith(("http://", "https://")):
        return _by_url(text)
    path = Path(text).expanduser().absolute()
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return _by_kubeconfig(lambda: config.load(path))
    raise errors.ConfigurationError(
        f"there is no {path}: name a data directory of `kiln up`, a folder of kiln.start(), a "
        "kubeconfig or a URL"
    )


def _by_environment() -> Home | Server:
    if os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _by_kubeconfig(config.load)
    default = paths.data_dir()
    if endpoints.read(default) is None:
        raise errors.ConfigurationError(
            f"no server is known: KUBECONFIG is not set, nobody has served {default}; {_START}"
        )
    return _in_folder(default)


def _by_kubeconfig(load: Callable[[], config.Config]) -> Server:
    return Server(settings=load(), load=load)


def _in_folder(folder: Path) -> Home | Server:
    found = endpoints.read(folder)
    if found is None:
        raise errors.ConfigurationError(
            f"nobody has served {folder}: `kiln up --data {folder}` does, or "
            f"kiln.start({str(folder)!r})"
        )
    if not found.is_server:
        return Home(folder=folder)

    def load() -> config.Config:
        """Over plain http, which takes less than TLS, with the administrator's token."""
        now, token = endpoints.read(folder) or found, endpoints.token(folder)
        if not token:
            raise errors.ConfigurationError(
                f"you may not read {folder / endpoints.TOKEN}: name a kubeconfig that has a token "
                "of your own, as `kiln token ACCOUNT` makes them"
            )
        return config.Config(server=now.http, token=token)

    return Server(settings=load(), load=load)


def _by_url(url: str) -> Server:
    """A URL says where, not who: the kubeconfig of the environment must be of the same server."""
    try:
        place = _by_environment()
    except errors.ConfigurationError as error:
        raise errors.ConfigurationError(
            f"{url}: no token is known for it ({error}). Name its kubeconfig or data directory"
        ) from error
    if not isinstance(place, Server) or not _same(url, place.settings.server):
        raise errors.ConfigurationError(
            f"{url} is not the server of KUBECONFIG or of the default data directory: name its "
            "kubeconfig or data directory, which have the token for it"
        )
    return place


def _same(url: str, server: str) -> bool:
    """Also when one is the TLS port and the other the one after it, which serves plain http."""
    ours, theirs = _port(url), _port(server)
    if ours is None or theirs is None:
        return url.rstrip("/") == server.rstrip("/")
    return ours == theirs


def _port(url: str) -> int | None:
    """The TLS port of a server on this machine; None for any other."""
    try:
        parts = parse.urlsplit(url)
        host, port = parts.netloc.rpartition(":")[0], parts.port
    except ValueError:
        return None
    if host not in _LOOPBACK or port is None:
        return None
    return port if parts.scheme == "https" else port - 1
