"""A program on a worker spawns a task of each executor through its socket, and gets the results."""

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import up_server, waiting

BOOKS = Path(__file__).parent.parent.parent / "examples" / "16-custom-resource"

# Posts each spec, then waits for each child; what they came to is its own result.
PROGRAM = """
import http.client, json, os, socket

def call(method, path, body=None):
    connection = http.client.HTTPConnection("task")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(os.environ["KILN_SOCKET"])
    connection.request(method, path, body=None if body is None else json.dumps(body))
    response = connection.getresponse()
    return response.status, json.loads(response.read())

specs = json.load(open(os.environ["KILN_INPUT"]))["specs"]
ids = {name: call("POST", "/tasks", {"key": name, "spec": spec}) for name, spec in specs.items()}
ends = {}
for name, (status, said) in ids.items():
    assert status == 201, (name, status, said)
    status, end = call("GET", f"/tasks/{said['id']}?wait=60")
    ends[name] = [end["state"], end["reason"], end["result"]]
json.dump(ends, open(os.environ["KILN_OUTPUT"], "w"))
"""

EXTERNAL = """
from kilnwork import executor

async def double(task: executor.Task) -> int:
    return 2 * task.payload["n"]

executor.run("doubler", double)
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Service that responds to any request."""

    def do_GET(self) -> None:
        body = b'{"number": 42}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


@contextlib.contextmanager
def serving() -> Iterator[int]:
    """Run the service and yield its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(20)
        server.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_server.UpServer]:
    """Yield a server, the controller of Books, an executor of requests, and a user's program."""
    commands = [
        [sys.executable, str(BOOKS / "printer.py")],
        [up_server.KILN, "executor", "http", "--allow", "127.0.0.0/8"],
        [sys.executable, "-c", EXTERNAL],
    ]
    with up_server.serving(tmp_path, slots=2) as made:
        made.kiln("apply", "-f", str(BOOKS / "crd.yaml"))
        environment = {**os.environ, **made.environment}
        running = [
            subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            for command in commands
        ]
        try:
            yield made
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)


@pytest.fixture
def port() -> Iterator[int]:
    with serving() as made:
        yield made


def test_worker_spawns_a_task_of_each_executor(server: up_server.UpServer, port: int) -> None:
    request = {"method": "GET", "url": f"http://127.0.0.1:{port}/"}
    book = {
        "apiVersion": "my.custom.domain/v1alpha1",
        "kind": "Book",
        "metadata": {},
        "spec": {"chapters": 2},
    }
    rules = {"successCondition": '.status.phase == "Succeeded"', "jsonPath": ".status.pages"}
    script = 'echo 7 > "$KILN_OUTPUT"'
    soon = {"timeouts": {"pendingSeconds": 1}}
    specs: dict[str, Any] = {
        "worker": {"command": ["sh", "-c", script]},
        "pod": {
            "pod": {
                "spec": {
                    "containers": [
                        {"name": "main", "image": "label", "command": ["sh", "-c", script]}
                    ]
                }
            }
        },
        "customResource": {"customResource": {"manifest": book, "result": rules}},
        "http": {"http": {"request": request, "response": {"resultJsonPath": ".number"}}},
        "external": {"external": {"executor": "doubler", "payload": {"n": 4}}},
        # neither Argo nor Knative is here: they wait, and say so
        "workflow": {"workflow": {"spec": {"entrypoint": "main"}}, **soon},
        "function": {"function": {"service": "hello", "request": {**request, "url": "/"}}, **soon},
    }
    server.kiln("apply", "-f", "-", stdin=json.dumps(parent(specs)))
    server.kiln("wait", "parent", "--timeout", "90s", timeout_s=100)
    assert server.get("tasks", "parent")["status"]["result"]["value"] == {
        "worker": ["Success", "Succeeded", 7],
        "pod": ["Success", "Succeeded", 7],
        "customResource": ["Success", "Succeeded", 2],
        "http": ["Success", "Succeeded", 42],
        "external": ["Success", "Succeeded", 8],
        "workflow": ["Failed", "PendingTimedOut", None],
        "function": ["Failed", "PendingTimedOut", None],
    }
    waiting.wait_until(
        lambda: not json.loads(server.kiln("get", "books", "-o", "json").stdout)["items"],
        what="the object is removed, after its task has ended",
    )


def parent(specs: dict[str, Any]) -> dict[str, Any]:
    """Return a Task that runs PROGRAM with these specs as input."""
    metadata = {"apiVersion": "kilnwork.dev/v1alpha1", "metadata": {"name": "parent"}}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {**metadata, "kind": "TaskObject", "data": specs},
            {
                **metadata,
                "kind": "Task",
                "spec": {
                    "command": [sys.executable, "-c", PROGRAM],
                    "inputs": [{"name": "specs", "object": "parent"}],
                },
            },
        ],
    }
