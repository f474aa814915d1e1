"""The token of a manager expires while tasks run, and is replaced by a new one.

The manager runs outside the cluster, on a kubeconfig with a token file, as its Pod has one. Its
token is bound to a Secret (TokenRequest, `boundObjectRef`): when that is deleted, the API server
sends 401.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import kube_cluster, kube_load, kube_manager, waiting

pytestmark = pytest.mark.timeout(180)

_PORT = 7443
_ACCOUNT = "kilnwork-manager"


class Outside(kube_manager.Manager):
    """`kiln manager` as a process beside the cluster, with the rights of the Pod's account."""

    def __init__(self, kube: kube_cluster.Kube, home: kube_manager.Home, directory: Path) -> None:
        super().__init__(kube, home)
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self._token = directory / "token"

    def install(self) -> None:
        made = self.manifests("--only", "crds", "--only", "rights")
        self.kube.kubectl("apply", "-f", "-", stdin=made)
        self.new_token("first")
        given = json.loads(self.kube.kubeconfig.read_text())
        given["users"][0]["user"] = {"tokenFile": str(self._token)}
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(given))
        argv = [kube_cluster.KILN, "manager", f"--kubeconfig={kubeconfig}"]
        argv += [f"--data={self.directory / 'data'}", f"--listen={self.kube.address}:{_PORT}"]
        argv += [f"--advertise={self.kube.address}:{_PORT}"]
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                argv, stdout=log, stderr=log, env=self.kube.environment, cwd=self.directory
            )
        waiting.wait_until(lambda: "leads on" in self.log(), what="the manager leads")

    def new_token(self, secret: str) -> None:
        """Return a token that is valid as long as this Secret exists."""
        here = f"--namespace={kube_manager.NAMESPACE}"
        self.kube.kubectl("create", here, "secret", "generic", secret)
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={secret}")
        token = self.kube.kubectl("create", here, "token", _ACCOUNT, *bound)
        new = self._token.with_suffix(".new")
        new.write_text(token)
        new.rename(self._token)  # as the kubelet replaces it

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def described(self) -> str:
        return self.log()[-4000:]

    def remove(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(40)
        super().remove()


@pytest.fixture
def outside(kube: kube_cluster.Kube, real_node: str, tmp_path: Path) -> Iterator[Outside]:
    made = Outside(kube, kube_manager.on_real_node(real_node), tmp_path)
    try:
        made.install()
        yield made
    finally:
        made.remove()


def test_tasks_end_with_the_next_token(outside: Outside, namespace: str) -> None:
    kube = outside.kube
    load = kube_load.Load(outside, namespace)
    load.prepare()
    load.start(30, seconds=2)
    load.wait_running(2)
    kube.kubectl("delete", f"--namespace={kube_manager.NAMESPACE}", "secret", "first")

    def refused() -> bool:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        token = (outside.directory / "token").read_text()
        review = {"spec": {"token": token}}
        return not kube.http.post(path, review).ok()["status"].get("authenticated", False)

    waiting.wait_until(refused, what="the first token is no good any more")
    waiting.wait_until(
        lambda: "401" in outside.log() or "Unauthorized" in outside.log(),
        what="the manager is refused",
        timeout_s=40,
    )
    outside.new_token("second")
    load.check()
    assert outside.process is not None
    assert outside.process.poll() is None
