"""`kiln.connect()`: opens a session with a running dispatcher.

Public as `kilnwork.connect`. The link is the dispatcher's Unix socket if that is visible here, else
a connection through the manager's port or the API server's proxy (`endpoints`), with blobs over
HTTP. If a TaskCluster does not exist, the error lists those that do.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from urllib import parse

from kilnwork.channel import blocking_link, http_upgrade
from kilnwork.data import blob_renewal, cached_blobs, local_blobs
from kilnwork.data import remote_blobs as remote_blobs
from kilnwork.endpoints import connector, endpoint_files, resolve
from kilnwork.kit import clock, errors, scratch
from kilnwork.kube import config
from kilnwork.sdk import code_packing, driver_session, home_supervisor

OPEN_S = 30.0
"""How many seconds a dispatcher may take to respond: after its start it reads the journal."""


def connect(  # noqa: PLR0913  a public door: options are named
    where: str | os.PathLike[str] | None = None,
    *,
    namespace: str | None = None,
    cluster: str = "default",
    working_dir: str | os.PathLike[str] | None = None,
    modules: Sequence[ModuleType | str] = (),
    retry_failed: bool = False,
    reconnect_timeout: float = driver_session.RECONNECT_TO_SERVER_S,
    close_timeout: float = driver_session.CLOSE_S,
) -> driver_session.Driver:
    """Open a session with a running server; it is the current session until it is closed.

    `where`: the data directory of a `kiln up`, the directory of a `kiln.start(DIRECTORY)`, a
    kubeconfig (of a `kiln up`, or of a Kubernetes cluster with a manager in it) or the server's
    URL. By default it is `$KUBECONFIG` if that is set, else the Kubernetes cluster of the Pod that
    this process runs in, else the default data directory. `namespace`: the namespace of the tasks;
    by default that of the kubeconfig, else `default`. `cluster`: the TaskCluster that runs the
    tasks.

    `working_dir`: a directory whose files are sent to workers, which run in it and import from it;
    `modules`: modules or packages that are sent to workers for import. Both are for a `kiln up`,
    whose workers have neither the driver's directory nor its import path. `retry_failed`: see
    `start`. `reconnect_timeout`, `close_timeout`: see `start`; reconnecting may take twice as long
    by default, since a manager may move to another machine.

    Raises ConfigurationError if there is no such server, namespace or TaskCluster (it lists those
    that exist), or if the token may not create tasks there; `NotShippable` (a DataError) or OSError
    for a directory or module that cannot be sent.
    """
    timeouts = driver_session.Timeouts.checked(reconnect_timeout, close_timeout)
    endpoint = resolve.resolve(where)
    wanted = namespace or endpoint.namespace
    if endpoint.directory is not None:
        opened = _to_home(endpoint.directory, wanted, cluster, timeouts)
    else:
        to = connector.ManagerConnector(endpoint.load, namespace=wanted)
        opened = _to_server(to, wanted, cluster, timeouts, endpoint.load_api)
    opened.retry_failed = retry_failed
    try:
        opened.open(timeout_s=OPEN_S)
        _ship(opened, working_dir, modules)
    except BaseException:
        opened.close()
        raise
    return opened


def _ship(
    opened: driver_session.Driver,
    working_dir: str | os.PathLike[str] | None,
    modules: Sequence[ModuleType | str],
) -> None:
    if working_dir is not None or modules:
        directory = None if working_dir is None else Path(working_dir)
        shipped = code_packing.pack(directory, opened.blobs, modules=modules)
        opened.environment, opened.shipped = shipped.digest, shipped.modules
        for left_out in shipped.left_out:
            warnings.warn(code_packing.NOT_SHIPPED.format(left_out), stacklevel=3)
        if shipped.digest is not None:  # keep the blob until a task refers to it
            blob_renewal.hold(opened, (local_blobs.parse(shipped.digest),))


def _to_home(
    directory: Path, namespace: str, cluster: str, timeouts: driver_session.Timeouts
) -> driver_session.Driver:
    if (namespace, cluster) != (home_supervisor.NAMESPACE, home_supervisor.CLUSTER):
        raise errors.ConfigurationError(
            f"{directory} is of a kiln.start(): it has namespace {home_supervisor.NAMESPACE} with "
            f"cluster {home_supervisor.CLUSTER} and no other"
        )
    path = endpoint_files.socket(directory)
    try:
        blocking_link.unix(path).close()
    except OSError as error:
        raise errors.ConfigurationError(
            f"no process serves {directory} any more: kiln.start({str(directory)!r}) does"
        ) from error
    opened = driver_session.Driver(
        connect=lambda: blocking_link.unix(path),
        credential=lambda: endpoint_files.token(directory),
        namespace=namespace,
        cluster=cluster,
        patience_s=timeouts.reconnect_s,
        close_timeout=timeouts.close_s,
    )
    opened.one_cluster = True
    return opened


def _to_server(
    to: connector.ManagerConnector,
    namespace: str,
    cluster: str,
    timeouts: driver_session.Timeouts,
    load_api: Callable[[], config.Config],
) -> driver_session.Driver:
    """Open a session over the Unix socket if that is on this machine, else over the network.

    `load_api`: see `Endpoint`.
    """
    found = to.find()
    _check_cluster(to, namespace, cluster)
    path = resolve.local_socket(to.server, found)
    if path is not None:
        opened = driver_session.Driver(
            connect=lambda: blocking_link.unix(path),
            credential=to.token,
            namespace=namespace,
            cluster=cluster,
            patience_s=timeouts.reconnect_s,
            close_timeout=timeouts.close_s,
        )
    else:
        opened = _over_network(to, namespace, cluster, timeouts)
    opened.shares_files = opened.imports_ours = False
    opened.servers = lambda: (connector.ServerConnector(load_api, clock.SystemClock()), to)
    return opened


def _over_network(
    to: connector.ManagerConnector, namespace: str, cluster: str, timeouts: driver_session.Timeouts
) -> driver_session.Driver:
    """Open a session over the network.

    Blobs that are read are cached until the session is closed.
    """
    directory = scratch.Scratch("kiln-d-")

    def keep(of: str) -> local_blobs.Blobs:
        path = to.path(f"/blobs/{parse.quote(of, safe='')}")
        return cached_blobs.CachedBlobs(
            directory.path / of, remote_blobs.RemoteBlobs(to, path=path)
        )

    return driver_session.Driver(
        connect=lambda: http_upgrade.open_channel(to),
        credential=to.token,
        namespace=namespace,
        cluster=cluster,
        patience_s=timeouts.reconnect_s,
        close_timeout=timeouts.close_s,
        keep=keep,
        on_close=directory.close,
    )


def _check_cluster(to: connector.ManagerConnector, namespace: str, cluster: str) -> None:
    """Check that the user may submit tasks in the namespace, and that the TaskCluster exists.

    Raises ConfigurationError.
    """
    response = to.get(f"/v1/namespaces/{parse.quote(namespace, safe='')}/clusters")
    if not response.ok:
        raise errors.ConfigurationError(response.message())
    names = [str(item["name"]) for item in response.document()["items"]]
    if cluster not in names:
        known = f"those that exist: {', '.join(names)}" if names else "it has none"
        raise errors.ConfigurationError(
            f'namespace "{namespace}" has no TaskCluster "{cluster}"; {known}'
        )
