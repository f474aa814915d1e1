"""A control plane with a manager, a node and a warm worker on this machine; see `cluster.py`.

Everything runs as processes here: etcd and the control plane of hack/kube, `kiln manager`, and
`kiln node`, which starts the worker Pod. Writes to the API server are read from its metrics.
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from hack.kube import cluster

from kilnwork.api import kinds, manager_access, meta
from kilnwork.kube import client, config, errors

BIN = Path(sys.executable).parent
CLUSTER = "bench"
NAMESPACE = "default"
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Home:
    """A running cluster with all that a task needs, as a context manager."""

    def __init__(self, running: cluster.Cluster, scratch: Path, *, slots: int = 8) -> None:
        self.kubeconfig = running.kubeconfig
        self._running = running
        self._scratch = scratch
        self._slots = slots
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._running.kubectl("create", "namespace", manager_access.NAMESPACE)
        try:
            self._start("node", "--address", "127.0.0.1", "--no-taint", "--name", "bench")
            self._start(
                "manager", "--listen", "127.0.0.1:0", "--advertise", "unix",
                "--worker-python", sys.executable,
            )  # fmt: skip
            asyncio.run(self._make_cluster())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    @property
    def manager_pid(self) -> int:
        """Return the pid of `kiln manager`."""
        return self._processes["manager"].pid

    def _start(self, command: str, *options: str) -> None:
        directory = self._scratch / command
        directory.mkdir()
        argv = [str(BIN / "kiln"), command, "--data", str(directory / "data"), *options]
        with (directory / "log").open("wb") as log:
            self._processes[command] = subprocess.Popen(
                argv,
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
                cwd=directory,
                stdout=log,
                stderr=log,
            )

    async def _make_cluster(self) -> None:
        spec = {"replicas": 1, "slotsPerWorker": self._slots}
        made = {"metadata": {"name": CLUSTER}, "spec": spec}
        async with client.Client(config.load(self.kubeconfig)) as kube:
            await kube.create(kinds.TASK_CLUSTERS, made, NAMESPACE)

            async def ready() -> bool:
                found = await kube.get(kinds.TASK_CLUSTERS, CLUSTER, NAMESPACE)
                return bool(found.get("status", {}).get("readyReplicas"))

            await until(ready, what="a worker is connected", timeout_s=60)

    def writes(self) -> Counter[str]:
        """Return the number of writes so far, by resource and subresource."""
        return count_writes(self._running.kubectl("get", "--raw", "/metrics"))


def count_writes(metrics: str) -> Counter[str]:
    """Return writes by resource and subresource from the text of an API server's /metrics.

    Without leases, which are renewed in any case.
    """
    counts: Counter[str] = Counter()
    for labels, value in _REQUESTS.findall(metrics):
        found = dict(_LABEL.findall(labels))
        if found["verb"] in WRITES and found["resource"] != "leases":
            name = "/".join(filter(None, (found["resource"], found["subresource"])))
            counts[name] += int(float(value))
    return counts


def task(name: str, *command: str, **spec: Any) -> meta.JsonObject:
    """Return a declared task for the warm worker."""
    wanted = {"clusterName": CLUSTER, "command": list(command), **spec}
    return {"metadata": {"name": name}, "spec": wanted}


async def until(look: Callable[[], Any], *, what: str, timeout_s: float) -> None:
    """Wait until `look` returns true."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(errors.Unavailable):
            if await look():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(0.05)
