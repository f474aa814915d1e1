"""etcd and the control plane: started in a directory, stopped, broken for a while, removed.

Used by the fixtures of the tests and by `python -m hack.kube up`. Has all flags with their reasons:
each is needed, makes a test faster, or is like production where a test depends on it.
"""

import json
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hack.kube import access, binary, pki, processes, sandbox

READY_S = 60.0
"""Three seconds on an idle machine of two cores."""

SERVICE_RANGE = sandbox.SERVICES
KUBERNETES_SERVICE = "10.96.0.1"
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a cluster.

    `directory`: all state; removed by `remove`. `address`: where the API server listens; Pods on a
    real node need one that they can reach. `extra`: more flags by component. `controllers`: those
    of `CONTROLLERS` to run. `crds`: manifests applied before the controller manager starts, since
    its garbage collector sees later kinds only at a resync of 30 s.
    """

    directory: Path
    address: str = "127.0.0.1"
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    controllers: Sequence[str] = CONTROLLERS
    crds: Sequence[Path] = ()


class Cluster(access.Access):
    """One control plane. `start`, use `kubeconfig`, `stop`, `remove`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.directory, address=settings.address, ports=[])
        self.settings = settings
        self.processes = processes.Processes(self.directory / "log")
        self._bin = binary.directory()

    def start(self) -> None:
        """Start everything and wait until Pods can be created. Raises Died or TimeoutError, with
        logs in `directory`.
        """
        self._bin = binary.ensure()
        if not self._ports:
            self._prepare()
        self.start_part("etcd")
        self.start_part("kube-apiserver")
        self._apply_crds()
        for part in self.settings.controllers:
            self.start_part(part)
        if "kube-controller-manager" in self.settings.controllers:
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            self._until(lambda: self.responds(path), "the default service account is there")

    def start_part(self, name: str) -> None:
        """Start one component; the API server responds at /readyz when this returns."""
        arguments: dict[str, Callable[[], list[str]]] = {
            "etcd": self._etcd,
            "kube-apiserver": self._apiserver,
            "kube-controller-manager": self._controller_manager,
            "kube-scheduler": self._scheduler,
        }
        argv = [str(self._bin / name), *arguments[name](), *self.settings.extra.get(name, ())]
        self.processes.start(name, argv, cwd=self.directory)
        if name == "kube-apiserver":
            self._until(lambda: self.responds("/readyz"), "the API server is ready")

    def stop_part(self, name: str) -> None:
        self.processes.stop(name)

    def kill_part(self, name: str) -> None:
        self.processes.kill(name)

    def pause_part(self, name: str) -> None:
        """Send SIGSTOP: the component keeps its connections and sends no response."""
        self.processes.signal(name, signal.SIGSTOP)

    def resume_part(self, name: str) -> None:
        self.processes.signal(name, signal.SIGCONT)

    def stop(self) -> None:
        """Stop every component, newest first."""
        self.processes.stop_all()

    def remove(self) -> None:
        """Kill every component, since no state is kept, and remove the directory."""
        self.processes.kill_all()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _prepare(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.pki.mkdir(parents=True, mode=0o700)
        self._ports = _free_ports(self.settings.address, 5)
        self._save()
        self._ca = pki.Authority(self.pki, "ca")
        front = pki.Authority(self.pki, "front-proxy-ca")
        names = (
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "localhost",
            *dict.fromkeys(("127.0.0.1", self.settings.address, KUBERNETES_SERVICE)),
        )
        self._ca.server("apiserver", names)
        self._ca.client(
            "kubelet-client", user="kube-apiserver-kubelet-client", groups=["system:masters"]
        )
        front.client("front-proxy", user="front-proxy")
        pki.service_account_keys(self.pki)
        self._ca.client("admin", user="admin", groups=["system:masters"])
        self._write_kubeconfig("admin")
        for component in CONTROLLERS:
            self._ca.client(component, user=f"system:{component}")
            self._write_kubeconfig(component)

    def _apply_crds(self) -> None:
        for manifest in self.settings.crds:
            self.kubectl("apply", "-f", str(manifest))
        if self.settings.crds:
            self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not done():
            self.processes.check()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{what}: not within {READY_S:.0f} s; logs are in {self.directory}"
                )
            time.sleep(0.05)

    def _etcd(self) -> list[str]:
        peer = f"http://127.0.0.1:{self._ports[2]}"
        return [
            "--name=kube",
            f"--data-dir={self.directory / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--snapshot-count=1000000",
            f"--quota-backend-bytes={4 << 30}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=kube={peer}",
        ]

    def _apiserver(self) -> list[str]:
        address = self.settings.address
        flags = [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={self.port}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={self.pki / 'apiserver.crt'}",
            f"--tls-private-key-file={self.pki / 'apiserver.key'}",
            f"--client-ca-file={self.pki / 'ca.crt'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.pki / 'sa.pub'}",
            f"--service-account-signing-key-file={self.pki / 'sa.key'}",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={self.pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={self.pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            f"--requestheader-client-ca-file={self.pki / 'front-proxy-ca.crt'}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self.pki / 'front-proxy.crt'}",
            f"--proxy-client-key-file={self.pki / 'front-proxy.key'}",
            "--shutdown-delay-duration=0s",
            "--profiling=false",
            # off by default in 1.33 alone; our server has it, and client-go of 1.34 uses it
            "--feature-gates=WatchList=true",
        ]
        if address.startswith("127."):  # it refuses to publish loopback as an endpoint
            flags.append("--endpoint-reconciler-type=none")
        return flags

    def _controller_manager(self) -> list[str]:
        name = "kube-controller-manager"
        return [
            f"--kubeconfig={self.directory / name}.kubeconfig",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[3]}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.pki / 'sa.key'}",
            f"--root-ca-file={self.pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={self.pki / 'ca.crt'}",
            f"--cluster-signing-key-file={self.pki / 'ca.key'}",
            "--controllers=*",
            "--pvclaimbinder-sync-period=1s",  # a claim older than its volume waits for that
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
        ]

    def _scheduler(self) -> list[str]:
        path = self.directory / "scheduler.json"
        kubeconfig = str(self.directory / "kube-scheduler.kubeconfig")
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 500, "burst": 1000},
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
        }
        path.write_text(json.dumps(document))
        return [
            f"--config={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[4]}",
        ]


def _free_ports(address: str, count: int) -> list[int]:
    """Return free ports. Another process could take one before its use; in practice none does."""
    sockets = [socket.create_server((address, 0)) for _ in range(count)]
    ports = [int(found.getsockname()[1]) for found in sockets]
    for found in sockets:
        found.close()
    return ports
