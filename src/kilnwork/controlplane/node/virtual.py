"""Our node attached to somebody else's API server: a virtual node, as virtual-kubelet's are.

Used by `kiln node`. Puts a client, a serving certificate and `local.LocalNode` together, in a
folder that only one process has at a time. Images are labels there as everywhere on our nodes, so
the Node is tainted: only Pods that tolerate it come.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kilnwork.controlplane import lock
from kilnwork.controlplane.node import kubelet, local, own_certificate, registration, shim
from kilnwork.kit import clock, errors, paths
from kilnwork.kube import client, config

PROVIDER = registration.Taint("virtual-kubelet.io/provider", "kilnwork", "NoSchedule")
"""The taint of virtual nodes, by the convention of virtual-kubelet."""

GRACE_S = 10.0
"""Between SIGTERM and SIGKILL for the Pods of a node that stops."""

Say = Callable[[str], None]


def _say_nothing(_: str) -> None:
    pass


class Settings(NamedTuple):
    """What the user chose. `client_ca`: PEM file of the CA whose client certificates may ask for
    logs; None: the CA of the API server. `patience_s`: how long Pods go on without this process.
    `keeps_pods`: leave them running when it stops, so that the next one takes them over.
    """

    name: str
    folder: Path
    workdir: Path
    address: str
    port: int = 0
    taints: tuple[registration.Taint, ...] = (PROVIDER,)
    labels: dict[str, str] | None = None
    client_ca: Path | None = None
    patience_s: float = shim.PATIENCE_S
    keeps_pods: bool = False


class VirtualNode:
    """One node of a cluster. `start` it in a running loop, then `stop` it."""

    def __init__(
        self, kube: config.Config, settings: Settings, *, time: clock.Clock | None = None
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._now = time or clock.SystemClock()
        self._lock = lock.DirectoryLock(settings.folder)
        self._exits = contextlib.AsyncExitStack()
        self._started = False
        self._node: local.LocalNode

    @property
    def port(self) -> int:
        """Where the kubelet paths are served."""
        return self._node.port

    async def start(self, *, say: Say = _say_nothing) -> None:
        """Be Ready when this returns. Raises KilnError; nothing runs on after a failure."""
        say(f"registering node {self._settings.name}")
        async with contextlib.AsyncExitStack() as exits:
            certificates = self._open_folder(exits)
            kube = await exits.enter_async_context(
                client.Client(self._kube, user_agent="kiln-node", time=self._now)
            )
            settings = self._local_settings(certificates)
            paths.make_private(settings.run_dir)
            self._node = local.LocalNode(kube, settings, time=self._now)
            await self._node.start()
            self._exits = exits.pop_all()
            self._started = True

    async def stop(self, *, say: Say = _say_nothing) -> None:
        """End every Pod of the node and say so, or leave them to the next process; then leave."""
        async with self._exits:
            if not self._started:
                return
            if self._settings.keeps_pods:
                await self._node.abandon()
                return
            say("ending Pods")
            await self._node.stop(grace_s=GRACE_S)

    def _open_folder(self, exits: contextlib.AsyncExitStack) -> kubelet.Certificates:
        folder = self._settings.folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
            exits.callback(self._lock.release)
            found = kubelet.Certificates(
                folder / "kubelet.crt", folder / "kubelet.key", self._client_ca()
            )
            own_certificate.ensure(
                found.certificate,
                found.key,
                name=self._settings.name,
                address=self._settings.address,
                now=self._now,
            )
        except OSError as error:
            raise errors.ConfigurationError(
                f"data directory {folder} cannot be used: {error.strerror or error}; "
                "name a folder that you may write with --data"
            ) from error
        return found

    def _client_ca(self) -> Path:
        given = self._settings.client_ca or self._kube.ca_file
        if given is not None:
            return given
        if self._kube.ca_data is None:
            raise errors.ConfigurationError(
                "who may ask this node for logs is not known, since the kubeconfig names no CA: "
                "name the CA of client certificates with --client-ca-file"
            )
        path = self._settings.folder / "client-ca.crt"
        paths.write_private(path, self._kube.ca_data.encode())
        return path

    def _local_settings(self, certificates: kubelet.Certificates) -> local.Settings:
        chosen = self._settings
        return local.Settings(
            name=chosen.name,
            folder=chosen.folder,
            run_dir=paths.runtime_dir(chosen.folder),
            workdir=chosen.workdir,
            certificates=certificates,
            address=chosen.address,
            port=chosen.port,
            patience_s=chosen.patience_s,
            labels=chosen.labels or {},
            taints=chosen.taints,
            mounts_accounts=False,
        )
