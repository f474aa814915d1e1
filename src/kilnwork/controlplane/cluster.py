"""The embedded control plane as a whole: one data directory, one API server, one local node.

`kiln up` starts it and mounts the REST API of room `server` next to Kubernetes;
`kilnwork.testing.kubernetes` starts it for tests. The order in which the parts start and stop is
defined in `start` and `stop`, and nowhere else.
"""

import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import names
from kilnwork.controlplane import (
    binder,
    errors,
    gc,
    installed_kind_types,
    lock,
    pod_gc,
    store,
    taint_eviction,
)
from kilnwork.controlplane.apiserver import (
    app,
    authn,
    authz,
    catalog,
    default_roles,
    definition_controller,
    deletion,
    impersonation,
    namespaces,
    object_writer,
    pki,
    podexec,
    podlogs,
    requests,
    resource_handler,
    role_aggregator,
    tcp_ports,
    tokens,
    watches,
)
from kilnwork.controlplane.node import kubelet_api, local_node, pod_field_effects
from kilnwork.endpoints import endpoint_files
from kilnwork.kit import asgi, data_directories, ids, serving
from kilnwork.kit import clock as clocks
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client as clients
from kilnwork.kube import config
from kilnwork.version import __version__

log = logging.getLogger(__name__)

DEFAULT_PORT = 7443
_REQUESTS_END_S = 2.0
_DATABASE, _KUBECONFIG = "control.db", "kubeconfig"


class ControlPlaneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a control plane: data directory, port, name of the node and installed kinds."""

    data_dir: Path
    port: int = DEFAULT_PORT
    """HTTPS port; the next port serves plain HTTP. 0 means a free pair of ports: that of the last
    start if it is still free."""
    workdir: Path = msgspec.field(default_factory=Path.cwd)
    """Working directory of containers that name none."""
    node_name: str = msgspec.field(default_factory=lambda: names.dns_label(socket.gethostname()))
    controllers: bool = True
    """Whether to run the garbage collector, the binder, taint eviction and the Pod collector."""
    installed: installed_kind_types.Extensions = installed_kind_types.Extensions()
    """Kinds that are defined at each start, with their rules."""


class ClockAndIds(msgspec.Struct, frozen=True, kw_only=True):
    """Sources of time, uids and randomness, which tests replace."""

    clock: clocks.Clock = msgspec.field(default_factory=clocks.SystemClock)
    new_uid: ids.NewUid = ids.new_uid
    entropy: ids.Entropy = msgspec.field(default_factory=ids.system_entropy)


class ControlPlane:
    """The embedded control plane: API server, controllers and node of one data directory.

    Call `mount` before or after `start`. Public attributes: `data_dir`, `run_dir` (a private
    directory with a path short enough for sockets), `kubeconfig` (a path), `certificates`, and,
    once started, `address`, `http_address`, `app` (the ASGI app that listens), `authenticator`,
    `authorizer`, `writer` and `node` (None while no node runs).
    """

    def __init__(self, settings: ControlPlaneSettings, tools: ClockAndIds | None = None) -> None:
        self._settings = settings
        self._tools = tools or ClockAndIds()
        self.data_dir = settings.data_dir.absolute()
        self.run_dir = data_directories.runtime_dir(self.data_dir)
        self.kubeconfig = self.data_dir / _KUBECONFIG
        self.certificates = pki.Pki(
            self.data_dir / "pki",
            clock=self._tools.clock,
            server_names=settings.installed.server_names,
        )
        self.node: local_node.LocalNode | None = None
        self.port = 0
        self._definitions: definition_controller.DefinitionController | None = None
        self._lock = lock.DirectoryLock(self.data_dir)
        self._mounts: list[app.Mount] = []
        self._stops: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    @property
    def address(self) -> str:
        """Return the HTTPS URL of the server, under which everything is served."""
        return f"https://{tcp_ports.HOST}:{self.port}"

    @property
    def http_address(self) -> str:
        """Return the plain HTTP URL of the server, under which everything except Kubernetes is
        served.
        """
        return f"http://{tcp_ports.HOST}:{self.port + 1}"

    @property
    def installed_problem(self) -> str | None:
        """Return the reason why installed kinds are not served, and what to do.

        None when all are served.
        """
        return None if self._definitions is None else self._definitions.problem

    @property
    def serves_installed(self) -> bool:
        """Return whether clients can use all installed kinds."""
        return self._definitions is not None and self._definitions.serves_installed

    def mount(self, prefix: str, mounted: asgi.App) -> None:
        """Serve an ASGI app under a path prefix on both ports.

        The app authenticates its own requests.
        """
        self._mounts.append(app.Mount(prefix, mounted))

    async def authenticate(self, request: asgi.Request) -> authn.User | None:
        """Return the user of a request to a mounted app, or None without a valid credential.

        Accepts a client certificate or a bearer token, and `Impersonate-*` headers. Raises
        StatusError when the user may not impersonate.
        """
        acts = impersonation.is_requested(request.first_headers)
        named = requests.headers(request) if acts else {}
        return await app.authenticate(self._server_parts, request, named)

    async def start(self) -> None:
        """Start the API server and the controllers.

        Clients can connect on return; there is no node yet. Raises ConfigurationError when the
        directory or a port is in use or cannot be used. After a failure, whatever was started is
        stopped again.
        """
        try:
            await self._start()
        except OSError as error:
            await self.stop()
            what = error.strerror or str(error)
            where = f" ({error.filename})" if error.filename else ""
            raise kit_errors.ConfigurationError(
                f"data directory {self.data_dir} cannot be used: {what}{where}"
            ) from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._open_directory()
        pair = tcp_ports.bind(
            self._settings.port, preferred=self._last_port(), entropy=self._tools.entropy
        )
        self._stops.append(("ports", _as_async(pair.close)))
        self.port = pair.number
        self.certificates.prepare()
        token = self._admin_token()
        held = store.Store(self.data_dir / _DATABASE)
        try:
            await held.start()
        except errors.StoreBroken as error:
            raise kit_errors.ConfigurationError(str(error)) from error
        self._stops.append(("store", held.stop))
        await self._start_store_followers(held)
        await self._listen(pair, self._parts(token))
        # After `_listen`, so that a client that reads it can connect.
        data_directories.write_private(self.kubeconfig, self._kubeconfig_document(token))
        log.info("control plane serves", extra={"address": self.address})

    async def start_node(self) -> None:
        """Start the local node, which uses the API server over HTTP like every other client.

        From then on, responses to writers of Pods warn of fields that the node does not honour.
        """
        pair = self.certificates.node(self._settings.node_name)
        settings = config.Config(
            server=self.address,
            ca_file=self.certificates.ca_certificate,
            client_cert=pair.certificate.read_text(),
            client_key=pair.key.read_text(),
        )
        kube = clients.Client(settings, user_agent="kiln-node", time=self._tools.clock)
        await kube.__aenter__()
        self._stops.append(("node client", lambda: kube.__aexit__(None, None, None)))
        self.node = local_node.LocalNode(
            kube,
            local_node.LocalNodeSettings(
                name=self._settings.node_name,
                directory=self.data_dir,
                run_dir=self.run_dir,
                workdir=self._settings.workdir,
                certificates=kubelet_api.Certificates(
                    pair.certificate, pair.key, self.certificates.ca_certificate
                ),
            ),
            time=self._tools.clock,
        )
        await self.node.start()
        self.writer.kinds.pod_warnings = pod_field_effects.warnings

    def read_log(
        self, namespace: str, pod: str, container: str, limit_bytes: int | None
    ) -> AsyncGenerator[bytes, None] | None:
        """Return the output so far of a container of the local node.

        None if no node runs, or if the container has no log on this node.
        """
        if self.node is None:
            return None
        return self.node.read_log(namespace, pod, container, limit_bytes=limit_bytes)

    async def stop_node(self, *, grace_s: float = 10.0) -> None:
        """Stop every container and the node.

        The API server must still run to receive the last statuses.
        """
        if self.node is not None:
            # Before the await, so that a second call does not stop it again.
            node, self.node = self.node, None
            await node.stop(grace_s=grace_s)

    async def stop(self) -> None:
        """Stop the node if it runs, then the other parts in the reverse order of their start."""
        await self.stop_node()
        while self._stops:
            name, stop = self._stops.pop()
            try:
                await stop()
            # The other parts must be stopped in any case.
            except Exception:
                log.exception("part did not stop", extra={"part": name})

    def publish(self, *, epoch: int | None = None, unix: str | None = None) -> None:
        """Write DIR/endpoints.json, which tells clients where this process listens.

        Call it when the whole server is ready. `epoch` is the dispatcher's. `unix` is the socket
        for workers and drivers on this machine; all others use `/channel` over TLS.
        """
        found = endpoint_files.Endpoints(
            version=__version__,
            pid=os.getpid(),
            epoch=epoch,
            kubernetes=self.address,
            http=self.http_address,
            channel=endpoint_files.Channel(unix),
        )
        endpoint_files.write(self.data_dir, found)

    def admin_config(self) -> config.Config:
        """Return the client configuration of the server's own controllers for the API server."""
        return config.load(self.kubeconfig)

    def _open_directory(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock.acquire()
        except OSError as error:
            raise kit_errors.ConfigurationError(
                f"data directory {self.data_dir} cannot be used: {error.strerror or error}; "
                "name a directory that you may write with --data"
            ) from error
        # First, hence released last: until then the directory belongs to this process.
        self._stops.append(("lock", _as_async(self._lock.release)))
        self._open_run_dir()

    def _open_run_dir(self) -> None:
        data_directories.make_private(self.run_dir)
        if self.run_dir.parent != self.data_dir:
            self._stops.append(("runtime directory", _as_async(self._remove_run_dir)))

    def _remove_run_dir(self) -> None:
        """Remove the runtime directory from /tmp, unless a shim still listens in it."""
        with contextlib.suppress(OSError):
            self.run_dir.rmdir()

    def _last_port(self) -> int | None:
        found = endpoint_files.read(self.data_dir)
        if found is None:
            return None
        _, _, number = found.kubernetes.rpartition(":")
        return int(number) if number.isdigit() else None

    def _admin_token(self) -> str:
        path = self.data_dir / endpoint_files.TOKEN
        if path.exists():
            token = path.read_bytes().decode("latin-1").strip()
            if not token.isascii() or (token and not token.isprintable()):
                raise kit_errors.ConfigurationError(
                    f"the token file {path} cannot be read: remove it to get a new token"
                )
            if token:
                path.chmod(0o600)
                return token
        token = secrets.token_urlsafe(32)
        data_directories.write_private(path, token.encode() + b"\n", durable=True)
        return token

    async def _start_store_followers(self, held: store.Store) -> None:
        """Start everything that follows the store; watches first, so that they miss no change."""
        tools, extended = self._tools, self._settings.installed
        self.writer = object_writer.ObjectWriter(
            held,
            clock=tools.clock,
            new_uid=tools.new_uid,
            entropy=tools.entropy,
            kinds=catalog.Catalog(extended.kinds),
        )
        self.authorizer = authz.Authorizer(self.writer.lookup)
        self._deleter = deletion.Deleter(self.writer)
        self._hub = watches.WatchHub(held, clock=tools.clock)
        self._hub.start()
        self._stops.append(("watches", self._hub.stop))
        ca = self.certificates.ca_data().decode()
        self._definitions = definition_controller.DefinitionController(
            self.writer, self._deleter, installed=[kind.definition for kind in extended.kinds]
        )
        await self._definitions.start()
        self._stops.append(("definitions", self._definitions.stop))
        self._namespaces = namespaces.NamespaceController(self.writer, self._deleter, ca=ca)
        await self._namespaces.start()
        await default_roles.ensure(self.writer, extended)
        self._stops.append(("namespaces", self._namespaces.stop))
        roles = role_aggregator.RoleAggregator(self.writer)
        roles.start()
        self._stops.append(("cluster roles", roles.stop))
        if self._settings.controllers:
            self._start_controllers()

    def _start_controllers(self) -> None:
        collector = gc.GarbageCollector(self.writer, self._deleter)
        collector.start()
        self._stops.append(("garbage collector", collector.stop))
        pod_binder = binder.Binder(self.writer)
        pod_binder.start()
        self._stops.append(("binder", pod_binder.stop))
        eviction = taint_eviction.TaintEviction(self.writer)
        eviction.start()
        self._stops.append(("taint eviction", eviction.stop))
        orphans = pod_gc.PodCollector(self.writer, self._deleter)
        orphans.start()
        self._stops.append(("pod garbage collector", orphans.stop))

    def _parts(self, admin_token: str) -> resource_handler.ServerParts:
        tools = self._tools
        minter = tokens.TokenIssuer(
            self.certificates.signing_key(), clock=tools.clock, new_uid=tools.new_uid
        )
        self.authenticator = authn.Authenticator(
            minter, admin_token=admin_token, lookup=self.writer.lookup
        )
        logs = podlogs.PodLogs(self.certificates, clock=self._tools.clock)
        self._stops.append(("pod logs", logs.close))
        streams = podexec.PodStreams(self.certificates)
        self._stops.append(("pod streams", streams.close))
        return resource_handler.ServerParts(
            writer=self.writer,
            deleter=self._deleter,
            hub=self._hub,
            namespace_controller=self._namespaces,
            authenticator=self.authenticator,
            authorizer=self.authorizer,
            minter=minter,
            logs=logs,
            streams=streams,
            entropy=tools.entropy,
            address=f"{tcp_ports.HOST}:{self.port}",
        )

    async def _listen(self, pair: tcp_ports.Ports, found: resource_handler.ServerParts) -> None:
        self._server_parts = found
        self.app = app.build(found, self._mounts)
        secure = serving.Listener(
            self.app,
            pair.tls,
            tls=serving.tls_context(
                self.certificates.server.certificate,
                self.certificates.server.key,
                client_ca=self.certificates.ca_certificate,
            ),
        )
        plain = serving.Listener(app.build(found, self._mounts, kubernetes=False), pair.plain)

        async def stop() -> None:
            # First: the listeners would wait for watches, which do not end by themselves.
            await self._hub.stop()
            await plain.stop(timeout_s=_REQUESTS_END_S)
            await secure.stop(timeout_s=_REQUESTS_END_S)

        self._stops.append(("listeners", stop))
        await secure.start()
        await plain.start()

    def _kubeconfig_document(self, token: str) -> bytes:
        cluster = {
            "server": self.address,
            # to_builtins encodes bytes as base64.
            "certificate-authority-data": msgspec.to_builtins(self.certificates.ca_data()),
        }
        context = {"cluster": "kilnwork", "user": "kilnwork", "namespace": "default"}
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kilnwork", "cluster": cluster}],
            "users": [{"name": "kilnwork", "user": {"token": token}}],
            "contexts": [{"name": "kilnwork", "context": context}],
            "current-context": "kilnwork",
        }
        return msgspec.yaml.encode(document)


def _as_async(stop: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        stop()

    return run
