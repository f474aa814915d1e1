"""kubectl exec, attach and port-forward for tests: with bytes, on a terminal, by either
transport.
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from websockets import client, frames, typing, uri

from support import kube_servers, waiting

Transport = Literal["spdy", "websocket"]
TRANSPORTS: tuple[Transport, ...] = ("websocket", "spdy")


@dataclass(frozen=True, slots=True)
class Place:
    """A node to run Pods on; `image` has sh, cat and python3 there."""

    kind: Literal["ours", "virtual", "kubelet"]
    node: str
    image: str

    def pod(self, name: str, *command: str, **container: Any) -> dict[str, Any]:
        """Return a Pod for this node with one container, `main`."""
        main = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "Never",
            "command": list(command),
            **container,
        }
        spec = {
            "containers": [main],
            "restartPolicy": "Never",
            "nodeName": self.node,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class Kubectl:
    """kubectl as administrator in one namespace, with one transport."""

    def __init__(
        self,
        program: Path,
        server: kube_servers.Server,
        *,
        namespace: str,
        home: Path,
        transport: Transport,
    ) -> None:
        self._argv = [str(program), f"--kubeconfig={server.kubeconfig}", f"--namespace={namespace}"]
        wanted = str(transport == "websocket").lower()
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": wanted,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": wanted,
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run kubectl to its end, whatever the exit code.

        Repeated if kubectl dropped data that came before it was ready: it reads the WebSocket
        before it has made its streams (client-go 0.33, StreamWithContext).
        """
        while True:
            done = subprocess.run(
                [*self._argv, *arguments],
                input=stdin,
                capture_output=True,
                env=self._environment,
                timeout=40,
                check=False,
            )
            if b"Unknown stream id" not in done.stderr:
                return done

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start kubectl in the background, with pipes unless `more` overrides them; the caller
        waits for it.
        """
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [*self._argv, *arguments], env=self._environment, bufsize=0, **{**pipes, **more}
        )

    @contextlib.contextmanager
    def terminal(self, *arguments: str, width: int, height: int) -> Iterator["Terminal"]:
        ours, theirs = os.openpty()
        made = Terminal(ours)
        made.resize(width=width, height=height)
        process = self.start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        made.process = process
        try:
            yield made
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    @contextlib.contextmanager
    def forward(self, pod: str, port: int) -> Iterator["Forward"]:
        """Run `port-forward` from a free local port inside the block."""
        process = self.start("port-forward", pod, f":{port}", stdin=subprocess.DEVNULL)
        assert process.stdout is not None
        try:
            line = process.stdout.readline().decode()
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert found, line + (process.stderr.read().decode() if process.stderr else "")
            yield Forward(int(found[1]), process)
        finally:
            process.kill()
            process.communicate()


@dataclass(frozen=True, slots=True)
class Forward:
    """A running port-forward."""

    port: int
    process: subprocess.Popen[bytes]

    def get(self, path: str) -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=20) as response:
            body: bytes = response.read()
            return body

    def responds(self, path: str) -> bool:
        """Return whether the forwarded port serves requests."""
        with contextlib.suppress(urllib.error.URLError, OSError):
            self.get(path)
            return True
        return False


class Terminal:
    """The user's end of a terminal that kubectl runs on."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = b""
        self.process: subprocess.Popen[bytes] | None = None

    def resize(self, *, width: int, height: int) -> None:
        """Resize the window of the terminal."""
        size = struct.pack("HHHH", height, width, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)
        if self.process is not None:  # the kernel signals only the session of the terminal
            self.process.send_signal(signal.SIGWINCH)

    def type(self, content: bytes) -> None:
        os.write(self._descriptor, content)

    def until(self, wanted: bytes, *, timeout_s: float = 30.0) -> bytes:
        """Read until `wanted` is shown; return everything shown so far."""
        deadline = time.monotonic() + timeout_s
        while wanted not in self.seen:
            left = deadline - time.monotonic()
            ready = select.select([self._descriptor], [], [], max(0.0, left))[0]
            assert ready, f"{wanted!r} was not shown, but {self.seen!r}"
            try:
                self.seen += os.read(self._descriptor, 65536)
            except OSError:  # EIO: kubectl has ended
                assert wanted in self.seen, self.seen
        shown, self.seen = self.seen, b""
        return shown

    def end(self, *, timeout_s: float = 30.0) -> int:
        """Return the exit code; the rest of the output is added to `seen`."""
        with contextlib.suppress(OSError):
            while piece := os.read(self._descriptor, 65536):
                self.seen += piece
        assert self.process is not None
        return self.process.wait(timeout_s)


def until_running(admin: kube_servers.Http, namespace: str, name: str) -> None:
    """Wait until the container of the Pod runs."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def look() -> bool:
        status = admin.get(path).ok()["status"]
        states = [s["state"] for s in status.get("containerStatuses") or ()]
        assert status["phase"] in ("Pending", "Running"), status
        return bool(states) and all("running" in state for state in states)

    waiting.wait_until(look, what=f"{name} runs", timeout_s=60.0)


class Pods:
    """Pods of this test on its node."""

    def __init__(self, place: Place, admin: kube_servers.Http, namespace: str) -> None:
        self._place = place
        self._admin = admin
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace

    def make(self, name: str, *command: str, **container: Any) -> None:
        """Create a Pod and wait until it runs."""
        self._admin.post(self.path, self._place.pod(name, *command, **container)).ok()
        until_running(self._admin, self._namespace, name)


class Caller:
    """A ServiceAccount with rights on subresources of Pods: resource → verbs."""

    def __init__(
        self, server: kube_servers.Server, admin: kube_servers.Http, namespace: str
    ) -> None:
        self._server = server
        self._namespace = namespace
        self._base = f"/namespaces/{namespace}"
        self._admin = admin
        self._token = ""

    def allow(self, **rights: list[str]) -> None:
        """Create the account; `exec=["get"]` is the verb get on pods/exec."""
        rules = [
            {"apiGroups": [""], "resources": [f"pods/{name}"], "verbs": verbs}
            for name, verbs in rights.items()
        ]
        metadata = {"name": "caller"}
        subject = {"kind": "ServiceAccount", "namespace": self._namespace, **metadata}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", **metadata}
        rbac = f"/apis/rbac.authorization.k8s.io/v1{self._base}"
        accounts = f"/api/v1{self._base}/serviceaccounts"
        self._admin.post(accounts, {"metadata": metadata}).ok()
        self._admin.post(f"{rbac}/roles", {"metadata": metadata, "rules": rules}).ok()
        binding = {"metadata": metadata, "subjects": [subject], "roleRef": role}
        self._admin.post(f"{rbac}/rolebindings", binding).ok()
        asked = {"spec": {"expirationSeconds": 600}}
        made = self._admin.post(f"{accounts}/caller/token", asked).ok()
        self._token = made["status"]["token"]
        waiting.wait_until(lambda: self._may(rights), what="the account may")

    def _may(self, rights: dict[str, list[str]]) -> bool:
        """Return whether the API server grants these rights; it learns of them a moment after they
        are written.
        """
        return all(
            self._admin.post(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                {
                    "spec": {
                        "user": f"system:serviceaccount:{self._namespace}:caller",
                        "resourceAttributes": {
                            "namespace": self._namespace,
                            "resource": "pods",
                            "subresource": subresource,
                            "verb": verb,
                        },
                    }
                },
            ).ok()["status"]["allowed"]
            for subresource, verbs in rights.items()
            for verb in verbs
        )

    def http(self) -> kube_servers.Http:
        return self._server.bearer(self._token)

    def socket(self, pod: str, what: str, query: str, *subprotocols: str) -> "WebSocket":
        """Open a WebSocket on a subresource of a Pod. Raises InvalidStatus if it is refused."""
        path = f"/api/v1{self._base}/pods/{pod}/{what}?{query}"
        return WebSocket(self._server, path, subprotocols, token=self._token)


class WebSocket:
    """A hand-written WebSocket client: the library's own one reads and writes TLS in two threads at
    once.
    """

    def __init__(
        self, server: kube_servers.Server, path: str, subprotocols: Sequence[str], *, token: str
    ) -> None:
        address = uri.parse_uri(server.url.replace("https", "wss", 1) + path)
        wanted = [typing.Subprotocol(name) for name in subprotocols]
        self._protocol = client.ClientProtocol(address, subprotocols=wanted or None)
        plain = socket.create_connection((address.host, address.port), timeout=30)
        context = ssl.create_default_context(cadata=server.ca)
        self._connection = context.wrap_socket(plain, server_hostname=address.host)
        self._heard: list[Any] = []
        try:
            request = self._protocol.connect()
            request.headers["Authorization"] = f"Bearer {token}"
            self._protocol.send_request(request)
            self._flush()
            self._hear()
            if self._protocol.handshake_exc is not None:
                raise self._protocol.handshake_exc
        except BaseException:
            self._connection.close()
            raise

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, message: bytes | str) -> None:
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)
        self._flush()

    def recv(self) -> bytes | None:
        """Return the next message, or None after the close frame of the server."""
        while True:
            event = self._hear()
            if event is None or event.opcode is frames.Opcode.CLOSE:
                return None
            if event.opcode in (frames.Opcode.TEXT, frames.Opcode.BINARY):
                return bytes(event.data)

    def __iter__(self) -> Iterator[bytes]:
        while (message := self.recv()) is not None:
            yield message

    def _hear(self) -> Any:
        while not self._heard:
            piece = self._connection.recv(65536)
            if not piece:
                self._protocol.receive_eof()
                return None
            self._protocol.receive_data(piece)
            self._heard += self._protocol.events_received()
            self._flush()
        return self._heard.pop(0)

    def _flush(self) -> None:
        with contextlib.suppress(OSError):  # the server may have closed it
            self._connection.sendall(b"".join(self._protocol.data_to_send()))
