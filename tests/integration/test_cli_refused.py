"""`kiln` with a client certificate: the manager gets a token of an account, or none.

The API server and the manager behind its proxy are scripted; the tests check how refusals are
handled.
"""

import json
import threading
from collections.abc import Iterator
from http import server
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import manager_access
from kilnwork.cli import exits, main

TASK = {
    "apiVersion": "kilnwork.dev/v1alpha1",
    "kind": "Task",
    "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "status": {"state": "Success", "attempts": 1, "run": 1, "reason": "Succeeded"},
}
PROXY = manager_access.proxy_path()
TOKENS = "/api/v1/namespaces/ns/serviceaccounts/"


class World(server.ThreadingHTTPServer):
    """Scripted rights. `accounts`: accounts whose tokens may be requested; others are forbidden.
    `missing`: the others do not exist.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RefusingHandler)
        self.accounts: set[str] = set()
        self.missing = False
        self.made = 0
        self.shown: list[tuple[str, str]] = []


class RefusingHandler(server.BaseHTTPRequestHandler):
    """An API server with one Task, and a manager behind it that has its output."""

    server: World

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith(PROXY):
            token = self.headers.get(manager_access.TOKEN_HEADER, "")
            self.server.shown.append((token, self.headers.get(manager_access.USER_HEADER, "")))
            self._manager(path.removeprefix(PROXY))
        elif path.endswith("/tasks/a"):
            self._send(200, TASK)
        else:
            self._refuse(404, "NotFound", f"{path} not found", name=path.rpartition("/")[2])

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if path.startswith(TOKENS):
            self._token(path.removeprefix(TOKENS).removesuffix("/token"))
        elif path.endswith("/selfsubjectreviews"):
            self._send(201, {"status": {"userInfo": {"username": "alice"}}})
        elif path.endswith("/tasks"):
            self.server.made += 1
            self._send(201, TASK)
        else:
            self._refuse(403, "Forbidden", f"you may not make {path}")

    do_PATCH = do_DELETE = do_PUT = do_POST  # noqa: N815 - http.server's names

    def _token(self, account: str) -> None:
        if account in self.server.accounts:
            self._send(201, {"spec": {}, "status": {"token": f"of {account}"}})
        elif self.server.missing:
            self._refuse(404, "NotFound", f'serviceaccounts "{account}" not found')
        else:
            self._refuse(403, "Forbidden", f"you may not ask for a token of {account}")

    def _manager(self, path: str) -> None:
        if path.endswith("/logs"):
            self._send(200, b"printed\n")
        elif path == manager_access.ENDPOINTS_PATH:
            self._send(200, {"channel": {"unix": ""}})
        else:
            self._send(200, {"items": []})

    def _refuse(self, status: int, reason: str, message: str, *, name: str = "") -> None:
        """Respond as API servers do: `details` name the missing object."""
        body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason}
        self._send(status, {**body, "message": message, "details": {"name": name}})

    def _send(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        kind = "text/plain" if isinstance(body, bytes) else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with World() as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        where = {"server": f"http://127.0.0.1:{listening.server_port}"}
        config = {
            "clusters": [{"name": "it", "cluster": where}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [
                {"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "ns"}}
            ],
            "current-context": "it",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        (tmp_path / "file.jsonl").write_text("{}\n")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.chdir(tmp_path)
        yield listening
        listening.shutdown()
        thread.join()


COMMANDS = [
    "run --watch -- true",
    "tasks",
    "logs a",
    "logs -f a",
    "why b",
    "retry b",
    "cancel b",
    "files",
    "files x",
    "results x",
    "redrive x",
    "redrive --watch x",
    "pause x",
    "resume x",
    "adjust x --parallelism 2",
    "get files",
    "delete file/x",
    "wait file/x",
    "jobs x --indexes",
    "get job x --indexes",
    "upload file.jsonl --mapper calculator --watch",
]


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_the_missing_right(
    world: World,
    capfd: pytest.CaptureFixture[str],
    command: str,
    missing: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    world.missing = missing
    code = main.main(command.split())
    output = capfd.readouterr()
    assert (code, output.out) == (exits.Exit.FORBIDDEN, ""), output
    assert "error: " in output.err
    assert "kilnwork-reader" in output.err
    assert ("--only drivers --drivers-in ns" in output.err) == missing
    assert "Traceback" not in output.err
    assert world.made == 0


def test_why_of_an_object_needs_no_manager(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["why", "a"]) == exits.Exit.OK
    assert "succeeded" in capfd.readouterr().out
    assert world.shown == []


@pytest.mark.parametrize(
    ("accounts", "shown"),
    [
        (
            {manager_access.DRIVER_ACCOUNT, manager_access.READER_ACCOUNT},
            f"of {manager_access.DRIVER_ACCOUNT}",
        ),
        ({manager_access.READER_ACCOUNT}, f"of {manager_access.READER_ACCOUNT}"),
    ],
)
def test_strongest_token_is_shown_with_its_user(
    world: World, capfd: pytest.CaptureFixture[str], accounts: set[str], shown: str
) -> None:
    world.accounts = accounts
    assert main.main(["logs", "a"]) == exits.Exit.OK
    assert capfd.readouterr().out == "printed\n"
    assert set(world.shown) == {(shown, "alice")}
