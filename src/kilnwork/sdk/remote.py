"""`kiln.connect()`: a session with a dispatcher that runs already.

Public as `kilnwork.connect`. Finds a `kiln up` by kubeconfig, folder or URL, or the folder of a
`kiln.start(FOLDER)`. The link is the server's Unix socket, so both are on the same machine for now.
"""

import http.client
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib import parse

import msgspec

from kilnwork.data import blobs, holding
from kilnwork.kit import errors as kit_errors
from kilnwork.kit import paths
from kilnwork.kube import config
from kilnwork.sdk import driver, endpoints, home, packing

OPEN_S = 30.0
"""How long a dispatcher may take to answer: one that has just been started reads its journal."""

_ASK_S = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A folder and who serves it. `credential`: what to show; `namespace`: None: not named."""

    folder: Path
    found: endpoints.Endpoints
    credential: Callable[[], str]
    namespace: str | None = None


def connect(
    where: str | os.PathLike[str] | None = None,
    *,
    namespace: str | None = None,
    cluster: str = "default",
    working_dir: str | os.PathLike[str] | None = None,
    modules: Sequence[ModuleType | str] = (),
) -> driver.Driver:
    """Open a session with a running server; it is the current one until it is closed.

    `where`: the data directory of a `kiln up`, the folder of a `kiln.start(FOLDER)`, a kubeconfig
    or the server's URL. None: what `$KUBECONFIG` names, else the default data directory.
    `namespace`: None: that of the kubeconfig, else `default`. `cluster`: the TaskCluster that runs
    the tasks. `working_dir`: a folder whose files workers get, to run in and import from;
    `modules`: modules or packages that they get to import. Both are for a `kiln up`, whose workers
    have neither the driver's folder nor its import path.

    Raises ConfigurationError when there is no such server, namespace or cluster (it lists those
    that there are), or the token may not make tasks there.
    """
    place = _find(where)
    wanted = namespace or place.namespace or home.NAMESPACE
    if place.found.is_server:
        _check_server(place, wanted, cluster)
    else:
        _check_home(place, wanted, cluster)
    opened = driver.Driver(
        connect=lambda: _connection(place),
        credential=place.credential,
        namespace=wanted,
        cluster=cluster,
    )
    opened.shares_files = opened.imports_ours = not place.found.is_server
    try:
        opened.open(timeout_s=OPEN_S)
        _ship(opened, working_dir, modules)
    except BaseException:
        opened.close()
        raise
    return opened


def _ship(
    opened: driver.Driver,
    working_dir: str | os.PathLike[str] | None,
    modules: Sequence[ModuleType | str],
) -> None:
    if working_dir is not None or modules:
        folder = None if working_dir is None else Path(working_dir)
        shipped = packing.pack(folder, opened.blobs, modules=modules)
        opened.environment, opened.shipped = shipped.digest, shipped.modules
        if shipped.digest is not None:  # until a task refers to it
            holding.hold(opened, (blobs.parse(shipped.digest),))


def _connection(place: _Place) -> socket.socket:
    """A fresh connection; the server may have been started anew meanwhile."""
    now = endpoints.read(place.folder) or place.found
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(now.channel.unix or "")
    except BaseException:
        made.close()
        raise
    return made


# where


def _find(where: str | os.PathLike[str] | None) -> _Place:
    if where is None:
        return _by_environment()
    text = os.fspath(where)
    if text.startswith(("http://", "https://")):
        folder = _folder_of(text, _usual_folders())
        if folder is None:
            raise _not_here(text)
        return _in_folder(folder)
    path = Path(text).expanduser().absolute()
    if path.is_dir():
        return _in_folder(path)
    if path.is_file():
        return _by_kubeconfig(lambda: config.load(path), folders=(path.parent, paths.data_dir()))
    raise kit_errors.ConfigurationError(
        f"there is no {path}: name a data directory of `kiln up`, a folder of kiln.start(), a "
        "kubeconfig or a URL"
    )


def _by_environment() -> _Place:
    default = paths.data_dir()
    named = os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST")
    if named:
        return _by_kubeconfig(config.load, folders=_usual_folders())
    if endpoints.read(default) is None:
        raise kit_errors.ConfigurationError(
            f"no server is known: KUBECONFIG is not set, nobody has served {default}. Start one "
            "with `kiln up`, or do without: kiln.start() needs none"
        )
    return _in_folder(default)


def _usual_folders() -> Iterator[Path]:
    """Where the endpoints of a server on this machine may be."""
    for name in os.environ.get("KUBECONFIG", "").split(os.pathsep):
        if name:
            yield Path(name).absolute().parent
    yield paths.data_dir()


def _by_kubeconfig(load: Callable[[], config.Config], *, folders: Iterable[Path]) -> _Place:
    settings = load()
    folder = _folder_of(settings.server, folders)
    found = None if folder is None else endpoints.read(folder)
    if folder is None or found is None:
        raise _not_here(settings.server)

    def credential() -> str:
        """As the kubeconfig says now: tokens are renewed."""
        now = load()
        if now.token_file is not None and not now.token:
            return now.token_file.read_text().strip()
        return now.token or endpoints.token(folder)

    return _Place(folder=folder, found=found, credential=credential, namespace=settings.namespace)


def _folder_of(server: str, folders: Iterable[Path]) -> Path | None:
    """The folder whose server has this URL."""
    for folder in folders:
        found = endpoints.read(folder)
        if found is not None and _plain(server) in (_plain(found.kubernetes), _plain(found.http)):
            return folder
    return None


def _plain(url: str) -> tuple[str, str]:
    """Scheme and port of a URL of this machine; anything else only equals itself."""
    parts = parse.urlsplit(url)
    host, _, port = parts.netloc.rpartition(":")
    return (parts.scheme, port) if host in _LOOPBACK else (url, "")


def _not_here(server: str) -> kit_errors.ConfigurationError:
    return kit_errors.ConfigurationError(
        f"{server} is no server of this machine whose data directory is known here. Sessions over "
        "the network come later; for a server on this machine name its data directory: "
        'kiln.connect("DIR")'
    )


def _in_folder(folder: Path) -> _Place:
    found = endpoints.read(folder)
    if found is None or found.channel.unix is None:
        raise kit_errors.ConfigurationError(
            f"nobody has served {folder}: start a server with `kiln up --data {folder}`, or do "
            f"without: kiln.start({str(folder)!r})"
        )
    return _Place(folder=folder, found=found, credential=lambda: endpoints.token(folder))


# who is there


def _check_home(place: _Place, namespace: str, cluster: str) -> None:
    if (namespace, cluster) != (home.NAMESPACE, home.CLUSTER):
        raise kit_errors.ConfigurationError(
            f"{place.folder} is of a kiln.start(): it has namespace {home.NAMESPACE} with cluster "
            f"{home.CLUSTER} and no other"
        )
    try:
        _connection(place).close()
    except OSError as error:
        raise kit_errors.ConfigurationError(
            f"nobody serves {place.folder} any more: kiln.start({str(place.folder)!r}) does"
        ) from error


def _check_server(place: _Place, namespace: str, cluster: str) -> None:
    """Ask `/v1` whether we may, and what there is."""
    status, document = _ask(place, f"/v1/namespaces/{parse.quote(namespace, safe='')}/clusters")
    if status == http.client.UNAUTHORIZED:
        raise kit_errors.ConfigurationError(
            f"{place.found.http} does not accept the token: take the kubeconfig that `kiln up` "
            "prints, or its data directory"
        )
    if status != http.client.OK:
        raise kit_errors.ConfigurationError(str(document.get("detail") or f"HTTP {status}"))
    names = [str(item["name"]) for item in document["items"]]
    if cluster not in names:
        known = f"those that exist: {', '.join(names)}" if names else "it has none"
        raise kit_errors.ConfigurationError(
            f'namespace "{namespace}" has no TaskCluster "{cluster}"; {known}'
        )


def _ask(place: _Place, path: str) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {place.credential()}"}
    connection = http.client.HTTPConnection(parse.urlsplit(place.found.http).netloc, timeout=_ASK_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read(), type=dict[str, Any])
    except (OSError, http.client.HTTPException) as error:
        raise kit_errors.ConfigurationError(
            f"the server of {place.folder} does not answer at {place.found.http} ({error}): is "
            f"`kiln up --data {place.folder}` running?"
        ) from error
    except msgspec.MsgspecError as error:
        raise kit_errors.ConfigurationError(f"{place.found.http} is no kiln server") from error
    finally:
        connection.close()
