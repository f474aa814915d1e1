"""A control plane as its users see it: addresses, identities, kubectl, and compaction of etcd.

Used by `cluster`, which runs one, and by tests in other processes, which find it by its directory.
"""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hack.kube import binary, control, pki


class Failed(subprocess.CalledProcessError):
    """A command that failed; the text has its output."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.output}{self.stderr}"


class Access:
    """The files in the `directory` of a cluster. `ports`: see `cluster`."""

    def __init__(self, directory: Path, *, address: str, ports: list[int]) -> None:
        self.directory = directory
        self.address = address
        self.pki = directory / "pki"
        self.kubeconfig = directory / "admin.kubeconfig"
        self._ports = ports

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self._ports[0]}"

    @property
    def port(self) -> int:
        return self._ports[0]

    @property
    def etcd_url(self) -> str:
        """Address at which etcd serves clients, without TLS, on loopback."""
        return f"http://127.0.0.1:{self._ports[1]}"

    def responds(self, path: str) -> bool:
        """Return True if an administrator's GET gets status 200."""
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(self.server + path, timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kubeconfig_for(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig with a new client certificate of that user; return its path."""
        name = user.replace(":", "-").replace("/", "-")
        pki.Authority.load(self.pki, "ca").client(name, user=user, groups=groups)
        return self._write_kubeconfig(name)

    def token_kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig with a bearer token."""
        return self._write_kubeconfig(name, user={"token": token})

    def kubectl(self, *arguments: str, stdin: str = "", timeout_s: float = 60.0) -> str:
        """Return the output of `kubectl ARGUMENTS` as administrator. Raises Failed."""
        done = subprocess.run(
            [str(binary.directory() / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise Failed(done.returncode, " ".join(arguments), done.stdout, done.stderr)
        return done.stdout

    def _write_kubeconfig(self, name: str, user: dict[str, str] | None = None) -> Path:
        """Write a kubeconfig as JSON, which is YAML, with absolute paths."""
        files = {
            "client-certificate": str(self.pki / f"{name}.crt"),
            "client-key": str(self.pki / f"{name}.key"),
        }
        cluster = {"server": self.server, "certificate-authority": str(self.pki / "ca.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kube", "cluster": cluster}],
            "users": [{"name": name, "user": user or files}],
            "contexts": [{"name": "kube", "context": {"cluster": "kube", "user": name}}],
            "current-context": "kube",
        }
        path = self.directory / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))
        return path

    def compact(self) -> int:
        """Drop etcd's history up to now, as happens every five minutes in production.

        Returns the revision that was kept: watches and continue tokens of an earlier one get 410.
        """
        response = self._etcd_call("kv/range", {"key": "AA=="})
        revision = int(response["header"]["revision"])
        self._etcd_call("kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _etcd_call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call etcd 3.5 by its JSON gateway."""
        request = urllib.request.Request(f"{self.etcd_url}/v3/{path}", json.dumps(body).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def _save(self) -> None:
        text = json.dumps({"address": self.address, "ports": self._ports})
        (self.directory / "cluster.json").write_text(text)


class Attached(Access):
    """A cluster that another process runs (`python -m hack.kube run` or `up`), to use and to break.

    A part is a component, such as `etcd`, or one of a node, such as `node-a/kubelet`. The methods
    raise control.Refused.
    """

    def __init__(self, directory: Path) -> None:
        saved = json.loads((directory / "cluster.json").read_text())
        super().__init__(directory, address=saved["address"], ports=saved["ports"])
        self._control = control.Client(directory)

    def start_part(self, name: str) -> None:
        self._control.call("start_part", name)

    def stop_part(self, name: str) -> None:
        self._control.call("stop_part", name)

    def kill_part(self, name: str) -> None:
        self._control.call("kill_part", name)

    def pause_part(self, name: str) -> None:
        self._control.call("pause_part", name)

    def resume_part(self, name: str) -> None:
        self._control.call("resume_part", name)
