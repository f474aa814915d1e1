"""A node with a real kubelet on this machine: containerd, runc, ptp networking, kubelet. Needs
root.

Used by `whole`, in the sandbox: Pods that are left when the kubelet ends die with the sandbox.
Every node has its own address on the bridge, a range for its Pods, a root cgroup below the
sandbox's, and its own `sandbox.NODE_DIRECTORY`: what its Pods mount from there by hostPath, no
other node sees.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hack.kube import binary, cgroups, cluster, containerd, sandbox

KUBELET, CONTAINERD = "kubelet", "containerd"
NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "conntrack": "conntrack",
    "mount": "mount",
    "unshare": "util-linux",
}
"""Program → package of Debian."""

_READY_S = 60.0
_DISK = ("available", "inodesFree")


class Missing(Exception):
    """A program that a node needs is not installed; the text says how to get it."""


def check() -> None:
    absent = missing()
    if absent:
        names = " ".join(sorted(absent))
        raise Missing(f"a node needs more: apt-get install --no-install-recommends {names}")


def missing() -> set[str]:
    """Return the packages of Debian whose programs are missing."""
    absent = {package for program, package in NEEDED.items() if shutil.which(program) is None}
    if not (containerd.PLUGINS / "ptp").exists():
        absent.add("containernetworking-plugins")
    return absent


class Node:
    """Number `index` of a cluster, from 0; its name is node-a, node-b, …"""

    def __init__(self, of: cluster.Cluster, *, index: int, cgroup: str) -> None:
        self.name = f"node-{chr(ord('a') + index)}"
        self.address = f"10.88.0.{10 + index}"
        self.directory = of.directory / self.name
        self.host_directory = self.directory / "host"
        """What is `sandbox.NODE_DIRECTORY` to its Pods."""
        self.socket = self.directory / "c.sock"
        self._cluster = of
        self._pods = 1 + index
        self._port = 10250 + 10 * index
        self._cgroup = f"{cgroup}/{self.name}"

    def start(self, images: Sequence[Path]) -> None:
        """Start the node and wait until it is Ready. Raises Died or TimeoutError."""
        self.host_directory.mkdir(parents=True)
        subprocess.run(
            ["ip", "address", "add", f"{self.address}/32", "dev", sandbox.BRIDGE], check=True
        )
        cgroups.make(self._cgroup)
        self.start_part(CONTAINERD)
        containerd.load(self.socket, images)
        self.start_part(KUBELET)

    def start_part(self, part: str) -> None:
        """Start KUBELET or CONTAINERD and wait until it is ready."""
        if part == CONTAINERD:
            self._start_containerd()
        elif part == KUBELET:
            self._start_kubelet()
        else:
            raise KeyError(f"{self.name} has no {part}, only {KUBELET} and {CONTAINERD}")

    def _start_containerd(self) -> None:
        pods = f"10.88.{self._pods}"
        path = containerd.configure(
            self.directory, socket=self.socket, pods=f"{pods}.0/24", host=f"{pods}.1"
        )
        argv = self._with_host_directory(["containerd", f"--config={path}"])
        self._cluster.processes.start(f"{self.name}/{CONTAINERD}", argv, cwd=self.directory)
        self._until(lambda: containerd.responds(self.socket), "containerd responds")

    def _start_kubelet(self) -> None:
        """Start the kubelet with the identity that the Node authorizer knows; it makes its serving
        certificate.
        """
        made = self._cluster
        user = f"system:node:{self.name}"
        kubeconfig = made.kubeconfig_for(user, groups=["system:nodes"])
        path = self.directory / "kubelet.json"
        path.write_text(json.dumps(self._configuration()))
        argv = [
            str(binary.directory() / "kubelet"),
            f"--config={path}",
            f"--kubeconfig={kubeconfig}",
        ]
        argv += [f"--root-dir={self.directory / 'kubelet'}", f"--cert-dir={self.directory / 'pki'}"]
        argv += [f"--hostname-override={self.name}", f"--node-ip={self.address}", "-v=1"]
        argv = self._with_host_directory(argv)
        made.processes.start(f"{self.name}/{KUBELET}", argv, cwd=self.directory)
        self._until(self._ready, f"{self.name} is Ready")

    def _with_host_directory(self, argv: Sequence[str]) -> list[str]:
        """Run a command with our directory of the node mounted.

        All other mounts are shared: those of the kubelet must reach containers.
        """
        script = f'mount --bind "$0" {sandbox.NODE_DIRECTORY} && exec "$@"'
        apart = ["unshare", "--mount", "--propagation=unchanged"]
        return [*apart, "sh", "-c", script, str(self.host_directory), *argv]

    def _ready(self) -> bool:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        try:
            return self._cluster.kubectl("get", "node", self.name, "-o", path) == "True"
        except subprocess.CalledProcessError:
            return False

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _READY_S
        while not done():
            self._cluster.processes.check()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{what}: not within {_READY_S:.0f} s; see {self.directory.parent}"
                )
            time.sleep(0.05)

    def _configuration(self) -> dict[str, object]:
        """Return the kubelet's configuration: nothing is evicted or collected, since images cannot
        be pulled again.
        """
        resolver = self.directory / "resolv.conf"
        resolver.write_text(f"nameserver {sandbox.ADDRESS}\n")
        disk = [f"{fs}.{what}" for fs in ("nodefs", "imagefs") for what in _DISK]
        limits = ["memory.available", "pid.available", *disk]
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": ["pods"],
            "address": self.address,
            "port": self._port,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self._port + 1,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._cluster.pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [sandbox.ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(resolver),
            "maxPods": 200,
            "oomScoreAdj": 0,
            "podLogsDir": str(self.directory / "logs"),
            "volumePluginDir": str(self.directory / "volumeplugins"),
            "evictionHard": dict.fromkeys(limits, "0%"),
            "imageGCHighThresholdPercent": 100,
            "serializeImagePulls": False,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
            "nodeStatusUpdateFrequency": "2s",
            "makeIPTablesUtilChains": False,
        }
