"""Virtual node: our node attached to another API server, like a node of virtual-kubelet.

Used by `kiln node`, and by `node_removal` for its `--remove`. A virtual node is assembled from a
client, a serving certificate and a `local_node.LocalNode`, in a directory that only one process
uses at a time. Images are only labels, as on all our nodes, so the Node is tainted: only Pods that
tolerate this are scheduled here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kilnwork.api import api_resources
from kilnwork.controlplane import lock
from kilnwork.controlplane.node import (
    kubelet_api,
    local_node,
    node_lease,
    own_certificate,
    registration,
    requested_certificate,
    shim,
)
from kilnwork.kit import clock, coroutines, data_directories, errors
from kilnwork.kube import client, config
from kilnwork.kube import errors as kube_errors

log = logging.getLogger(__name__)

PROVIDER = registration.NodeTaint("virtual-kubelet.io/provider", "kilnwork", "NoSchedule")
"""Taint of virtual nodes, by the convention of virtual-kubelet."""

_CERTIFICATE, _KEY = "kubelet.crt", "kubelet.key"

GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for the Pods of a node that stops."""

_YIELD_S = GRACE_S + 30.0
"""How long `stop` waits until a node that was taken has ended its Pods; normally much shorter."""

Say = Callable[[str], None]


def _say_nothing(_: str) -> None:
    pass


class VirtualNodeSettings(NamedTuple):
    """Settings of a virtual node, as the user chose them."""

    name: str
    directory: Path
    workdir: Path
    address: str
    port: int = 0
    taints: tuple[registration.NodeTaint, ...] = (PROVIDER,)
    labels: dict[str, str] | None = None
    client_ca: Path | None = None
    """PEM file of the CA whose client certificates may use the kubelet API. None: the CA that the
    API server publishes, else the CA of the API server itself."""
    patience_s: float = shim.PATIENCE_S
    """Seconds for which Pods keep running without this process."""
    keeps_pods: bool = False
    """Leave Pods running when the node stops, for the next process to take over."""
    asks_certificate: bool = False
    """Have the cluster sign the serving certificate."""
    seizes: bool = False
    """Take the name even from a process that has renewed its Lease recently."""


class VirtualNode:
    """One node of a cluster. Call `start` in a running event loop, then `stop`.

    `on_removed` is called when a removal requested by `registration.REMOVE` is complete, and when
    another process has taken the node over and nothing runs here any more. The owner then calls
    `stop`.
    """

    def __init__(
        self,
        kube: config.Config,
        settings: VirtualNodeSettings,
        *,
        on_removed: Callable[[], None] = lambda: None,
        time: clock.Clock | None = None,
    ) -> None:
        self._kube = kube
        self._on_removed = on_removed
        self._background = coroutines.BackgroundWork("virtual node")
        self._leaving = False
        self._taken = False
        self._stopping = False
        self.settings = settings
        self._now = time or clock.SystemClock()
        self._lock = lock.DirectoryLock(settings.directory)
        self._exits = contextlib.AsyncExitStack()
        self._started = False
        self._node: local_node.LocalNode

    @property
    def port(self) -> int:
        """Return the port of the kubelet API."""
        return self._node.port

    async def start(self, *, say: Say = _say_nothing) -> None:
        """Start the node, which is Ready on return. Raises KilnError.

        After an error, at most the shim with its containers keeps running, for `patience_s`.
        """
        say(f"registering node {self.settings.name}")
        async with contextlib.AsyncExitStack() as exits:
            self._open_directory(exits)
            kube = await exits.enter_async_context(
                client.Client(self._kube, user_agent="kiln-node", time=self._now)
            )
            settings = self._local_settings(await self._client_ca(kube))
            data_directories.make_private(settings.run_dir)
            self._node = local_node.LocalNode(kube, settings, time=self._now)
            await self._node.start()
            if self.settings.asks_certificate:
                self._background.start("certificate", self._requester(kube).keep())
            # Everything has started: from now on `stop` closes what `exits` holds.
            self._exits = exits.pop_all()
            self._started = True

    def _requester(self, kube: client.Client) -> requested_certificate.Requester:
        return requested_certificate.Requester(
            kube,
            self.settings.name,
            self.settings.address,
            self.settings.directory / _CERTIFICATE,
            self.settings.directory / _KEY,
            self._node.reload_certificate,
            self._now,
        )

    async def stop(self, *, say: Say = _say_nothing) -> None:
        """Stop the node.

        Its Pods are stopped, or left to the next process (`keeps_pods`).
        """
        self._stopping = True
        async with self._exits:
            if self._taken:
                # Cancelled, `_yield` would leave the Pods running beside those of the new holder.
                await self._background.wait(timeout_s=_YIELD_S)
            await self._background.stop()
            if not self._started or self._taken:
                return
            # When a node is removed, no Pods are left behind.
            if self.settings.keeps_pods and not self._leaving:
                await self._node.abandon()
                return
            say("ending Pods")
            await self._node.stop(grace_s=GRACE_S)

    async def remove(self, *, say: Say = _say_nothing) -> None:
        """Evict every Pod and delete the Node. Call `stop` afterwards. Raises KubeError."""
        self._leaving = True
        await self._node.remove(say)

    def _on_remove(self) -> None:
        if not self._leaving:
            self._leaving = True
            self._background.start("remove", self._remove())

    def _on_taken(self) -> None:
        # `stop` ends the Pods already.
        if self._stopping:
            return
        self._taken = self._leaving = True
        self._background.start("yield", self._yield())

    async def _yield(self) -> None:
        # Nothing is removed from here any more: the node belongs to another process.
        await self._background.stop()
        await self._node.stop_without_statuses(grace_s=GRACE_S)
        self._on_removed()

    async def _remove(self) -> None:
        log.info("node is to be removed", extra={"node": self.settings.name})
        while True:
            try:
                await self._node.remove(_say_nothing)
            except kube_errors.KubeError as error:
                facts = {"node": self.settings.name, "error": str(error)}
                log.warning("node not removed yet", extra=facts)
                await asyncio.sleep(node_lease.RENEW_S)
            else:
                self._on_removed()
                return

    def _open_directory(self, exits: contextlib.AsyncExitStack) -> None:
        directory = self.settings.directory
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
            exits.callback(self._lock.release)
            own_certificate.ensure(
                directory / _CERTIFICATE,
                directory / _KEY,
                name=self.settings.name,
                address=self.settings.address,
                now=self._now,
            )
        except OSError as error:
            raise errors.ConfigurationError(
                f"data directory {directory} cannot be used: {error.strerror or error}; "
                "name a directory that you may write with --data"
            ) from error

    async def _client_ca(self, kube: client.Client) -> Path:
        """Return the CA of client certificates.

        It is the user's, else the API server's, else the kubeconfig's.
        """
        if self.settings.client_ca is not None:
            return self.settings.client_ca
        text = await _published_ca(kube)
        if not text:
            log.warning(
                "client certificates of the kubeconfig's CA count, since the cluster's client CA "
                "may not be read: name that with --client-ca-file if it is another"
            )
        if not text and self._kube.ca_file is not None:
            return self._kube.ca_file
        text = text or self._kube.ca_data or ""
        if not text:
            raise errors.ConfigurationError(
                "who may ask this node for logs is not known, since the kubeconfig names no CA: "
                "name the CA of client certificates with --client-ca-file"
            )
        path = self.settings.directory / "client-ca.crt"
        data_directories.write_private(path, text.encode())
        return path

    def _local_settings(self, client_ca: Path) -> local_node.LocalNodeSettings:
        chosen = self.settings
        pair = (chosen.directory / _CERTIFICATE, chosen.directory / _KEY)
        return local_node.LocalNodeSettings(
            name=chosen.name,
            directory=chosen.directory,
            run_dir=data_directories.runtime_dir(chosen.directory),
            workdir=chosen.workdir,
            certificates=kubelet_api.Certificates(*pair, client_ca),
            address=chosen.address,
            port=chosen.port,
            patience_s=chosen.patience_s,
            labels=chosen.labels or {},
            taints=chosen.taints,
            # A real API server adds the account volume to each Pod (admission plugin).
            mounts_accounts=False,
            on_remove=self._on_remove,
            on_taken=self._on_taken,
            seizes=chosen.seizes,
        )


async def _published_ca(kube: client.Client) -> str:
    """Return the CA of client certificates that kube-apiserver publishes.

    Returns "" if it is not readable.
    """
    name, namespace = "extension-apiserver-authentication", "kube-system"
    try:
        config_map = await kube.get(api_resources.CONFIG_MAPS, name, namespace)
    except (kube_errors.NotFound, kube_errors.Forbidden):
        return ""
    return str((config_map.get("data") or {}).get("client-ca-file") or "")
