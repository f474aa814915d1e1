"""Addresses and names of Services inside the sandbox: kube-proxy and a name server.

Used by `whole`. One kube-proxy serves every node, since all of them share the sandbox's network.
"""

import json
import socket
import struct
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hack.kube import binary, cluster, sandbox

PROXY, DNS = "kube-proxy", "dns"
PARTS = (PROXY, DNS)
_HEALTH = "127.0.0.1:10256"
_READY_S = 60.0


class Services:
    """For the Services of `of`."""

    def __init__(self, of: cluster.Cluster) -> None:
        self._cluster = of

    def start(self) -> None:
        """Start both and wait until ClusterIPs and names work."""
        for part in PARTS:
            self.start_part(part)

    def start_part(self, name: str) -> None:
        if name == PROXY:
            self._start_proxy()
        else:
            self._start_dns()

    def _start_dns(self) -> None:
        made = self._cluster
        argv = [sys.executable, "-m", "hack.kube.dns", f"--listen={sandbox.ADDRESS}"]
        argv += [f"--server={made.server}", f"--pki={made.pki}"]
        top = Path(__file__).parents[2]
        made.processes.start(DNS, argv, cwd=top)
        self._until(_named, DNS)

    def _start_proxy(self) -> None:
        """Start kube-proxy, which waits half a minute for the Node it runs on; it gets a temporary
        one.

        Only the addresses are read (cmd/kube-proxy/app/server.go, getNodeIPs).
        """
        made = self._cluster
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": PROXY},
            "spec": {"unschedulable": True},
            "status": {"addresses": [{"type": "InternalIP", "address": sandbox.ADDRESS}]},
        }
        made.kubectl("create", "-f", "-", stdin=json.dumps(node))
        kubeconfig = made.kubeconfig_for("system:kube-proxy")
        path = made.directory / "kube-proxy.json"
        path.write_text(json.dumps(_proxy_configuration(kubeconfig)))
        made.processes.start(PROXY, [str(binary.directory() / PROXY), f"--config={path}"])
        self._until(_healthy, PROXY)
        made.kubectl("delete", "node", PROXY)

    def _until(self, done: Callable[[], bool], part: str) -> None:
        deadline = time.monotonic() + _READY_S
        while not done():
            self._cluster.processes.check()
            if time.monotonic() > deadline:
                log = self._cluster.processes.log(part)
                raise TimeoutError(f"{part} is not ready after {_READY_S:.0f} s: see {log}")
            time.sleep(0.05)


def _named() -> bool:
    """Query a name without an address: any response shows that the server is up."""
    question = struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0) + b"\x00" + struct.pack("!2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        try:
            sock.connect((sandbox.ADDRESS, 53))
            sock.send(question)
            return bool(sock.recv(512))
        except OSError:
            return False


def _healthy() -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{_HEALTH}/livez", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _proxy_configuration(kubeconfig: Path) -> dict[str, object]:
    """Return the configuration; zeros leave the kernel's settings alone, which are not the
    sandbox's own.
    """
    rules = {"minSyncPeriod": "0s", "syncPeriod": "30s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 100, "burst": 200},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": rules,
        "hostnameOverride": PROXY,
        "healthzBindAddress": _HEALTH,
        "metricsBindAddress": "127.0.0.1:10249",
    }
