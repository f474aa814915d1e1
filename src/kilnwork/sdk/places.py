"""Where a dispatcher runs to which a driver can connect: found by folder, kubeconfig or URL.

Used by `remote`. The folder of a `kiln.start(FOLDER)` is read; how a server (`kiln up`, or a
manager behind an API server) is reached is in `ways`.
"""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib import parse

from kilnwork.kit import errors, paths
from kilnwork.kube import config
from kilnwork.sdk import endpoints

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN, TOKEN_FILE, CA_FILE = "KILN_TOKEN", "KILN_TOKEN_FILE", "KILN_CA_FILE"
"""Environment variables for a URL: what to show there, and the PEM that its certificate is of."""

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
    """A `kiln up`, or the manager of a cluster, by what a kubeconfig says. `load` reads that
    again: tokens are renewed."""

    settings: config.Config
    load: Callable[[], config.Config]

    @property
    def namespace(self) -> str:
        """What a session without one means."""
        return self.settings.namespace


def near(settings: config.Config, endpoints: Mapping[str, Any]) -> str | None:
    """The dispatcher's Unix socket by what `/v1/endpoints` says; None when it is elsewhere.

    A server on loopback may be a cluster's, whose paths mean nothing here: a socket that somebody
    else has put there must not get our token.
    """
    path = str(endpoints.get("channel", {}).get("unix") or "")
    if not path or parse.urlsplit(settings.server).hostname not in _LOOPBACK:
        return None
    try:
        found = os.lstat(path)
        return path if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid() else None
    except OSError:  # not there, or of somebody else: the network is for all
        return None


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
    """A URL says where, not who: that is said by KILN_TOKEN or KILN_TOKEN_FILE (and KILN_CA_FILE),
    or by the kubeconfig of the environment if it is of the same server."""
    if os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE):
        return Server(settings=_of_url(url), load=lambda: _of_url(url))
    remedy = f"Name its kubeconfig or data directory, or set {TOKEN_FILE} and {CA_FILE}"
    try:
        place = _by_environment()
    except errors.ConfigurationError as error:
        raise errors.ConfigurationError(
            f"{url}: no token is known for it ({error}). {remedy}"
        ) from error
    if not isinstance(place, Server) or not _same(url, place.settings.server):
        raise errors.ConfigurationError(
            f"{url} is not the server of KUBECONFIG or of the default data directory: name its "
            f"kubeconfig or data directory, which have the token for it, or set {TOKEN_FILE} "
            f"and {CA_FILE}"
        )
    return place


def _of_url(url: str) -> config.Config:
    """A manager that is reached directly: an ingress, a forwarded port."""
    ca, token_file = os.environ.get(CA_FILE), os.environ.get(TOKEN_FILE)
    if parse.urlsplit(url).scheme == "http" and _port(url) is None:
        raise errors.ConfigurationError(f"{url}: a token is not sent over plain http; use https")
    return config.Config(
        server=url.rstrip("/"),
        ca_file=Path(ca) if ca else None,
        token=os.environ.get(TOKEN) or None,
        token_file=Path(token_file) if token_file else None,
    )


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
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if host not in _LOOPBACK or port is None:
        return None
    return port if parts.scheme == "https" else port - 1
