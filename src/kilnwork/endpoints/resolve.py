"""Resolution of the manager that a user chooses: by default, or by kubeconfig, directory or URL.

Used by the SDK; executors and the command line use only `local_socket`. The command line, which
takes only kubeconfigs, uses `kube.config`, whose order of precedence applies here too. Reads files
and the environment, and sends no request.
"""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib import parse

from kilnwork.endpoints import endpoint_files
from kilnwork.kit import data_directories, errors
from kilnwork.kube import config

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN, TOKEN_FILE, CA_FILE = "KILN_TOKEN", "KILN_TOKEN_FILE", "KILN_CA_FILE"
"""Environment variables for a URL: the token, the file of the token, and a file with the CA of the
server's certificate as PEM.
"""

KUBECONFIG = "kubeconfig"
"""Name of the kubeconfig in a data directory of `kiln up`."""

_START = "start one with `kiln up`, or do without: kiln.start() needs none"


def _no_server() -> config.Config:
    raise errors.ConfigurationError("a kiln.start() has no server, only a socket")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The location of a dispatcher, and the credentials for it.

    It is either a server (a `kiln up`, or an API server with a manager behind it), whose URL, TLS
    settings and credential `load` reads each time, since tokens are renewed; or the `directory` of
    a `kiln.start(DIRECTORY)`, which has only a Unix socket.
    """

    namespace: str = "default"
    """Namespace of a session that names none."""

    load: Callable[[], config.Config] = _no_server
    load_api: Callable[[], config.Config] = _no_server
    """Like `load`, but for Kubernetes objects: a `kiln up` serves them on its TLS port only."""
    directory: Path | None = None


def local_socket(server: str, document: Mapping[str, Any]) -> str | None:
    """Return the path of the dispatcher's Unix socket if it is on this machine, or None.

    `document`: the `/v1/endpoints` document of the server. A server on loopback may belong to a
    Kubernetes cluster, whose paths mean nothing here: a socket that another user has put there must
    not get the token.
    """
    path = str(document.get("channel", {}).get("unix") or "")
    if not path or parse.urlsplit(server).hostname not in _LOOPBACK:
        return None
    try:
        found = os.lstat(path)
        return path if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid() else None
    except OSError:  # missing, or of another user: use the network
        return None


def resolve(where: str | os.PathLike[str] | None) -> Endpoint:
    """Return the endpoint that `where` names: a URL, a data directory or a kubeconfig.

    If `where` is None, the environment decides: the kubeconfig that it names, or the default data
    directory. Raises ConfigurationError.
    """
    if where is None:
        return _by_environment()
    text = os.fspath(where)
    if text.startswith(("http://", "https://")):
        return _by_url(text)
    path = Path(text).expanduser().absolute()
    if path.is_dir():
        return _in_directory(path)
    if path.exists():
        return _by_config(lambda: config.load(path))
    raise errors.ConfigurationError(
        f"there is no {path}: name a data directory of `kiln up`, a directory of kiln.start(), a "
        "kubeconfig or a URL"
    )


def _by_environment() -> Endpoint:
    if config.named_by(os.environ):
        return _by_config(config.load)
    default = data_directories.data_dir()
    if endpoint_files.read(default) is None:
        raise errors.ConfigurationError(
            f"no server is known: KUBECONFIG is not set, no process has served {default}; {_START}"
        )
    return _in_directory(default)


def _by_config(
    load: Callable[[], config.Config], load_api: Callable[[], config.Config] | None = None
) -> Endpoint:
    return Endpoint(namespace=load().namespace, load=load, load_api=load_api or load)


def _in_directory(directory: Path) -> Endpoint:
    found = endpoint_files.read(directory)
    if found is None:
        raise errors.ConfigurationError(
            f"no process has served {directory}: `kiln up --data {directory}` does, or "
            f"kiln.start({str(directory)!r})"
        )
    if not found.is_server:
        return Endpoint(directory=directory)

    def load() -> config.Config:
        """Return the configuration for plain HTTP, which is faster than TLS, with the
        administrator's token.
        """
        now, token = endpoint_files.read(directory) or found, endpoint_files.token(directory)
        if not token:
            raise errors.ConfigurationError(
                f"you may not read {directory / endpoint_files.TOKEN}: name a kubeconfig that has "
                "a token of your own, as `kiln token ACCOUNT` makes them"
            )
        return config.Config(server=now.http, token=token)

    return _by_config(load, lambda: config.load(directory / KUBECONFIG))


def _by_url(url: str) -> Endpoint:
    """Return the endpoint for a URL, with credentials from elsewhere.

    The credentials come from KILN_TOKEN or KILN_TOKEN_FILE (and KILN_CA_FILE), or from the
    kubeconfig of the environment if that is for the same server.
    """
    if os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE):
        return _by_config(lambda: _of_url(url))
    remedy = f"Name its kubeconfig or data directory, or set {TOKEN_FILE} and {CA_FILE}"
    try:
        endpoint = _by_environment()
    except errors.ConfigurationError as error:
        raise errors.ConfigurationError(
            f"{url}: no token is known for it ({error}). {remedy}"
        ) from error
    if endpoint.directory is not None or not _same(url, endpoint.load().server):
        raise errors.ConfigurationError(
            f"{url} is not the server of KUBECONFIG or of the default data directory: name its "
            f"kubeconfig or data directory, which have the token for it, or set {TOKEN_FILE} "
            f"and {CA_FILE}"
        )
    return endpoint


def _of_url(url: str) -> config.Config:
    """Return the configuration for a manager at a URL, such as that of an ingress or a forwarded
    port.
    """
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
    """Return whether two URLs belong to the same server.

    The TLS port of a server on this machine and the plain HTTP port after it count as the same.
    """
    ours, theirs = _port(url), _port(server)
    if ours is None or theirs is None:
        return url.rstrip("/") == server.rstrip("/")
    return ours == theirs


def _port(url: str) -> int | None:
    """Return the TLS port in the URL of a server on this machine, or None for any other server."""
    try:
        parts = parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if host not in _LOOPBACK or port is None:
        return None
    return port if parts.scheme == "https" else port - 1
