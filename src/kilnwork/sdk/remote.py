"""`kiln.connect()`: a session with a dispatcher that runs already.

Public as `kilnwork.connect`. The link is the dispatcher's Unix socket, so both are on the same
machine for now; what is not there is answered with what is.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from urllib import parse

from kilnwork.channel import client
from kilnwork.data import blobs, holding
from kilnwork.kit import errors
from kilnwork.sdk import driver, home, packing, places

OPEN_S = 30.0
"""How long a dispatcher may take to answer: one that has just been started reads its journal."""


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
    that there are), or the token may not make tasks there; `NotShippable` (a DataError) or OSError
    for a folder or module that cannot be sent.
    """
    place = places.find(where)
    wanted = namespace or place.namespace
    if isinstance(place, places.Server):
        _check_server(place, wanted, cluster)
    else:
        _check_home(place, wanted, cluster)
    path = place.socket()
    opened = driver.Driver(
        connect=lambda: client.unix(path),
        credential=place.credential,
        namespace=wanted,
        cluster=cluster,
    )
    at_home = isinstance(place, places.Home)
    opened.shares_files = opened.imports_ours = opened.one_cluster = at_home
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


def _check_home(place: places.Home, namespace: str, cluster: str) -> None:
    if (namespace, cluster) != (home.NAMESPACE, home.CLUSTER):
        raise errors.ConfigurationError(
            f"{place.folder} is of a kiln.start(): it has namespace {home.NAMESPACE} with cluster "
            f"{home.CLUSTER} and no other"
        )
    try:
        client.unix(place.socket()).close()
    except OSError as error:
        raise errors.ConfigurationError(
            f"nobody serves {place.folder} any more: kiln.start({str(place.folder)!r}) does"
        ) from error


def _check_server(place: places.Server, namespace: str, cluster: str) -> None:
    """Be certain that we may submit there, and that the cluster exists."""
    quoted = parse.quote(namespace, safe="")
    items = place.ask(f"/v1/namespaces/{quoted}/clusters")["items"]
    names = [str(item["name"]) for item in items]
    if cluster not in names:
        known = f"those that exist: {', '.join(names)}" if names else "it has none"
        raise errors.ConfigurationError(
            f'namespace "{namespace}" has no TaskCluster "{cluster}"; {known}'
        )
