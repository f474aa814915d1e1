"""`kiln up` in a subprocess with its own data directory: the server of end-to-end tests."""

import contextlib
import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kilnwork.kube import config
from support import server_process, short_paths, waiting

KILN = str(Path(sys.executable).parent / "kiln")


class UpServer(server_process.ServerProcess):
    """One data directory and the server on it, which may be killed and restarted."""

    def __init__(
        self,
        data: Path,
        *,
        workdir: Path,
        slots: int | None = None,
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.workdir = workdir
        self.slots = slots
        self.options = options
        self.variables = variables or {}
        self.log = data.parent / f"{data.name}.log"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of commands: PATH, HOME and this server's kubeconfig."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "KUBECONFIG": str(self.data / "kubeconfig"),
            "TERM": "dumb",
        }

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start the server and wait until it reports that it is ready."""
        argv = [KILN, "up", "--port", "0", "--data", str(self.data), "--workdir", str(self.workdir)]
        if self.slots is not None:
            argv += ["--slots", str(self.slots)]
        argv += self.options
        environment = {**self.environment, **self.variables}
        short_paths.sockets_of(self.data)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
        waiting.wait_until(
            self.ready, what=f"kiln up is ready (see {self.log})", timeout_s=timeout_s
        )

    @property
    def http(self) -> str:
        return str(json.loads((self.data / "endpoints.json").read_text())["http"])

    def ready(self) -> bool:
        """Return whether /readyz of *this* process responds with 200."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(
                f"kiln up ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}"
            )
        try:
            endpoints = json.loads((self.data / "endpoints.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        if endpoints["pid"] != self.process.pid:
            return False
        try:
            with urllib.request.urlopen(endpoints["http"] + "/readyz", timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kiln(
        self, *arguments: str, check: bool = True, stdin: str | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `kiln ARGUMENTS` against this server."""
        return self._run([KILN, *arguments], check=check, stdin=stdin, timeout_s=timeout_s)

    def kubectl(
        self, *arguments: str, check: bool = True, stdin: str | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `kubectl ARGUMENTS` against this server."""
        return self._run(["kubectl", *arguments], check=check, stdin=stdin, timeout_s=timeout_s)

    def get(self, plural: str, name: str = "") -> Any:
        """Return an object of ours, or the list of all, by HTTP: cheaper than a process, for
        frequent calls.
        """
        return self._get(f"/apis/kilnwork.dev/v1alpha1/namespaces/default/{plural}/{name}")

    def core(self, plural: str, name: str = "") -> Any:
        """Return an object or list of Kubernetes' own kinds."""
        return self._get(f"/api/v1/namespaces/default/{plural}/{name}")

    def core_changes(self, plural: str, since: str) -> list[dict[str, Any]]:
        """Return every watch event after the resourceVersion `since`, including what a poll would
        miss.
        """
        query = urllib.parse.urlencode(
            {"watch": "1", "resourceVersion": since, "timeoutSeconds": "1"}
        )
        with self._open(f"/api/v1/namespaces/default/{plural}?{query}") as response:
            return [json.loads(line) for line in response]

    def _get(self, path: str) -> Any:
        with self._open(path.rstrip("/")) as response:
            return json.load(response)

    def _open(self, path: str) -> Any:
        settings = config.load(self.data / "kubeconfig")
        request = urllib.request.Request(
            settings.server + path, headers={"Authorization": f"Bearer {settings.token}"}
        )
        tls = ssl.create_default_context(cadata=settings.ca_data)
        return urllib.request.urlopen(request, timeout=30, context=tls)

    def _run(
        self, argv: list[str], *, check: bool, stdin: str | None, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            argv,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=timeout_s,
            check=False,
            cwd=self.workdir,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(argv[:6])} … ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def leftovers(self) -> dict[int, str]:
        """Return running processes of this data directory, with their commands."""
        needles = [str(path).encode() for path in (self.data, short_paths.links_of(self.data))]
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                facts = command + b"\0" + (entry / "environ").read_bytes()
                known = any(needle in facts for needle in needles)
            except OSError:
                continue
            if known and command:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found


@contextlib.contextmanager
def serving(
    directory: Path,
    *,
    slots: int | None = None,
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Iterator[UpServer]:
    """Yield a ready `kiln up` on free ports; stop it and check that no process is left."""
    server = UpServer(
        directory / "data", workdir=directory, slots=slots, options=options, variables=variables
    )
    server.start()
    try:
        yield server
    finally:
        code = server.stop()
    assert code == 0, server.log.read_text()[-4000:]
    assert server.leftovers() == {}
