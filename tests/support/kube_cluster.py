"""A running real cluster for tests/cluster: start, stop and break its components, attach nodes.

`Kube` is the cluster of $KILN_KUBE_DIRECTORY, which `python -m hack.kube` runs. `VirtualNode` is
`kiln node` in a subprocess.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.kube import access, binary, cluster, control, node

from support import kube_servers, server_process, waiting

KILN = str(Path(sys.executable).parent / "kiln")


class Kube(access.Attached):
    """The cluster: `access.Attached` (kubectl, identities, components to stop and start) and
    helpers for objects.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.http = kube_servers.real(directory).admin()

    def start_part(self, name: str) -> None:
        """Start a component and wait until it is ready; for the API server, restart its clients.

        Scheduler, controllers and kubelets retry only half a minute to a minute after an outage
        (client-go, NewReflector), so they are restarted; the containers of a kubelet run on.
        """
        super().start_part(name)
        if name == "kube-apiserver":
            kubelets = [f"{name}/{node.KUBELET}" for name in self.real_nodes()]
            for part in (*cluster.CONTROLLERS, *kubelets):
                with contextlib.suppress(control.Refused):  # a test has stopped it on purpose
                    self.kill_part(part)
                    super().start_part(part)

    def kill_part(self, name: str) -> None:
        super().kill_part(name)
        self.http.close()  # a cut connection looks like one that is kept

    def stop_part(self, name: str) -> None:
        super().stop_part(name)
        self.http.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for `kiln` and kubectl as the administrator."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{binary.directory()}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "KUBECONFIG": str(self.kubeconfig),
            "TERM": "dumb",
        }

    def kiln(
        self, *arguments: str, check: bool = True, stdin: str = "", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `kiln ARGUMENTS` as the administrator."""
        done = subprocess.run(
            [KILN, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode:
            output = f"{done.stdout}{done.stderr}"
            raise AssertionError(f"kiln {' '.join(arguments)}: {done.returncode}\n{output}")
        return done

    def get(self, *arguments: str) -> Any:
        """Return the decoded output of `kubectl get ARGUMENTS -o json`."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any], namespace: str | None = None) -> None:
        """Apply all objects with `kubectl apply`."""
        where = () if namespace is None else (f"--namespace={namespace}",)
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", *where, "-f", "-", stdin=json.dumps(document), timeout_s=240)

    def real_nodes(self) -> list[str]:
        """Return the names of the nodes with a kubelet, which `python -m hack.kube run --node`
        starts.
        """
        path = self.directory / "nodes.json"
        return list(json.loads(path.read_text())) if path.exists() else []

    @contextlib.contextmanager
    def lost(self, name: str) -> Iterator[None]:
        """Make a real node unreachable inside the block: pause its kubelet, drop all packets of its
        Pods.

        Its containers run on, as on a machine whose network is cut.
        """
        pods = self._pod_range(name)
        rules = [(chain, way) for chain in ("INPUT", "FORWARD", "OUTPUT") for way in ("-s", "-d")]
        self.pause_part(f"{name}/kubelet")
        try:
            for chain, way in rules:
                _iptables("--insert", chain, way, pods, "-j", "DROP")
            yield
        finally:
            for chain, way in rules:
                _iptables("--delete", chain, way, pods, "-j", "DROP")
            self.resume_part(f"{name}/kubelet")

    def _pod_range(self, name: str) -> str:
        return f"10.88.{1 + self.real_nodes().index(name)}.0/24"

    def node_is_ready(self, name: str) -> bool:
        """Return whether the Node exists and its condition Ready is True."""
        response = self.http.get(f"/api/v1/nodes/{name}")
        if response.status != 200:
            return False
        conditions = response.json["status"].get("conditions", ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _iptables(*arguments: str) -> None:
    subprocess.run(["iptables", "--wait", *arguments], check=True, capture_output=True)


class VirtualNode(server_process.ServerProcess):
    """A `kiln node` process as the administrator that can be killed, stopped and restarted.

    Its Pods outlive a SIGKILL. `more` has further options of the command.
    """

    def __init__(
        self, kube: Kube, directory: Path, *, name: str, more: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.directory = directory
        self.log = directory / "node.log"
        self._kube = kube
        self._more = more

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start the process and wait until its Node is Ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        argv = [KILN, "node", "--name", self.name, "--address", self._kube.address]
        argv += [
            "--data",
            str(self.directory / "data"),
            "--workdir",
            str(self.directory),
            *self._more,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdout=log, stderr=log, env=self._kube.environment, cwd=self.directory
            )
        waiting.wait_until(self._ready, what=f"{self.name} is Ready", timeout_s=timeout_s)

    def _ready(self) -> bool:
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            text = self.log.read_text()[-4000:]
            raise AssertionError(f"kiln node ended with {code}:\n{text}")
        return self._kube.node_is_ready(self.name)
