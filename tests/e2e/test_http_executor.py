"""`kiln up` and `kiln executor http` as a user starts them, with a service on uvicorn."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette import applications, requests, responses, routing

import kilnwork as kiln
from support import free_ports, up_server, waiting

SECRET = """
apiVersion: v1
kind: Secret
metadata:
  name: service
  labels: {kilnwork.dev/use: http}
  annotations: {kilnwork.dev/http-hosts: 127.0.0.1}
stringData: {token: hush-hush}
---
apiVersion: v1
kind: Secret
metadata: {name: private}
stringData: {token: mine-alone}
"""


class Service:
    """Service that reports the caller, holds requests, and calls back."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.seen: list[dict[str, str]] = []
        self.gate = threading.Event()
        self.holding = 0
        self.urls: list[str] = []
        app = applications.Starlette(
            routes=[
                routing.Route("/jobs", self._jobs, methods=["GET", "POST"]),
                routing.Route("/held", self._held, methods=["GET", "POST"]),
                routing.Route("/later", self._later, methods=["POST"]),
                routing.Route("/large", self._large),
            ]
        )
        settings = uvicorn.Config(
            app, host="127.0.0.1", port=port, log_level="warning", lifespan="off"
        )
        self.server = uvicorn.Server(settings)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    async def _jobs(self, request: requests.Request) -> responses.Response:
        self.seen.append(dict(request.headers))
        return responses.JSONResponse({"result": {"jobs": [1, 2]}})

    async def _held(self, request: requests.Request) -> responses.Response:
        self.seen.append(dict(request.headers))
        self.holding += 1
        try:
            while not self.gate.is_set() and not await request.is_disconnected():
                await asyncio.sleep(0.02)
        finally:
            self.holding -= 1
        return responses.JSONResponse({"held": True})

    async def _later(self, request: requests.Request) -> responses.Response:
        self.urls.append(request.headers["kiln-callback-url"])
        return responses.Response(status_code=202)

    async def _large(self, request: requests.Request) -> responses.Response:
        return responses.Response(b"x" * 300_000, media_type="application/octet-stream")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = Service(free_ports.free())
    made.thread.start()
    waiting.wait_until(lambda: made.server.started, what="the service serves")
    yield made
    made.gate.set()
    made.server.should_exit = True
    made.thread.join(20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("http"), slots=1) as made:
        made.kiln("apply", "-f", "-", stdin=SECRET)
        yield made


@contextlib.contextmanager
def executor(server: up_server.UpServer, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    log = server.data.parent / "executor.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [up_server.KILN, "executor", "http", "--allow", "127.0.0.0/8", *options],
            stdout=file,
            stderr=file,
            env=server.environment,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGKILL), log.read_text()[-3000:]


def create(server: up_server.UpServer, name: str, url: str, **http: Any) -> None:
    request = {"method": "GET", "url": url, **http.pop("request", {})}
    task = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name},
        "spec": {"http": {"request": request, **http}},
    }
    server.kiln("apply", "-f", "-", stdin=json.dumps(task))


def status(server: up_server.UpServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get("tasks", name).get("status") or {}
    return found


def says(server: up_server.UpServer, name: str, state: str, reason: str = "") -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        seen = status(server, name)
        right = seen.get("state") == state and reason in ("", seen.get("reason"))
        return seen if right else None

    found = waiting.wait_until(look, what=f"{name} is {state} {reason}", timeout_s=60)
    assert found is not None
    return found


def test_task_waits_for_an_executor_and_is_sent_with_its_secret(
    server: up_server.UpServer, service: Service
) -> None:
    secret = {"name": "X-Token", "_secretRef": {"name": "service", "key": "token"}}
    create(
        server,
        "jobs",
        f"http://127.0.0.1:{service.port}/jobs",
        request={"headers": [secret, {"name": "X-Name", "value": "${task.name}"}]},
        response={"resultJsonPath": ".result.jobs"},
    )
    seen = says(server, "jobs", "Pending", "ExecutorUnavailable")
    assert "kiln executor http" in seen["message"]
    with executor(server, "--name", "one"):
        seen = says(server, "jobs", "Success")
        assert seen["result"]["value"] == [1, 2]
        assert service.seen[-1]["x-token"] == "hush-hush"
        assert service.seen[-1]["x-name"] == "jobs"
        log = server.kiln("logs", "jobs").stdout
        assert json.loads(log)["log"]["entries"][0]["response"]["status"] == 200
        assert "hush-hush" not in log
        create(
            server,
            "private",
            f"http://127.0.0.1:{service.port}/jobs",
            request={"headers": [{**secret, "_secretRef": {"name": "private", "key": "token"}}]},
        )
        assert says(server, "private", "Failed")["reason"] == "SecretRefused"


@kiln.task
def name_of(number: int) -> str:
    return f"number {number}"


def test_python_submits_requests_with_results_of_functions(
    server: up_server.UpServer, service: Service
) -> None:
    header = {"name": "X-Name", "value": "${task.inputs.name}"}
    url = f"http://127.0.0.1:{service.port}/jobs"
    fetch = kiln.http(
        {
            "request": {"method": "GET", "url": url, "headers": [header]},
            "response": {"resultJsonPath": ".result.jobs"},
        },
        result=list[int],
    )
    with executor(server), kiln.connect(server.data / "kubeconfig"):
        assert fetch.submit(name="by itself").result(60) == [1, 2]
        assert service.seen[-1]["x-name"] == "by itself"
        assert fetch.submit(name=name_of.submit(7)).result(60) == [1, 2]
        assert service.seen[-1]["x-name"] == "number 7"
        assert [one.result(60) for one in fetch.map(["a", "b"])] == [[1, 2], [1, 2]]
        assert {one["x-name"] for one in service.seen[-2:]} == {"a", "b"}


def test_large_result_comes_back_whole(
    server: up_server.UpServer, service: Service, tmp_path: Path
) -> None:
    with executor(server):
        create(server, "large", f"http://127.0.0.1:{service.port}/large")
        says(server, "large", "Success")
    server.kiln("result", "large", "-o", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"x" * 300_000


def test_api_server_is_out_of_reach(server: up_server.UpServer) -> None:
    with executor(server):
        create(server, "inside", f"{server.http}/v1/endpoints")
        seen = says(server, "inside", "Failed")
        assert seen["reason"] == "AddressRefused"
        assert "API server" in seen["message"]


def test_killed_executor_loses_only_unrepeatable_requests(
    server: up_server.UpServer, service: Service
) -> None:
    service.gate.clear()
    with executor(server, "--name", "dies") as first:
        create(server, "again", f"http://127.0.0.1:{service.port}/held")
        create(
            server,
            "once",
            f"http://127.0.0.1:{service.port}/held",
            request={"method": "POST"},
        )
        for name in ("again", "once"):
            says(server, name, "Running")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    service.gate.set()
    with executor(server, "--name", "lives"):
        assert says(server, "again", "Success")["losses"] == 1
        assert says(server, "once", "Failed")["reason"] == "ExecutorLost"


def test_executor_that_was_away_for_too_long_reports_nothing(
    server: up_server.UpServer, service: Service
) -> None:
    """It is stopped for longer than its lease: another executor sends the request again, and the
    first one's report is refused.
    """
    service.gate.clear()
    with executor(server, "--name", "away") as first:
        create(server, "fenced", f"http://127.0.0.1:{service.port}/held")
        says(server, "fenced", "Running")
        os.kill(first.pid, signal.SIGSTOP)
        try:
            with executor(server, "--name", "here"):
                waiting.wait_until(
                    lambda: status(server, "fenced").get("attempts") == 2,
                    what="it is sent again",
                    timeout_s=60,
                )
                service.gate.set()
                seen = says(server, "fenced", "Success")
        finally:
            os.kill(first.pid, signal.SIGCONT)
        create(server, "after", f"http://127.0.0.1:{service.port}/jobs")
        says(server, "after", "Success")
    assert status(server, "fenced") == seen
    assert (seen["losses"], seen["podName"]) == (1, "here")


def test_callback_reaches_the_server(server: up_server.UpServer, service: Service) -> None:
    with executor(server, "--slots", "1"):
        create(
            server,
            "later",
            f"http://127.0.0.1:{service.port}/later",
            request={"method": "POST"},
            callback={},
            response={"resultJsonPath": "$.number"},
        )
        says(server, "later", "Running", "WaitingForResult")
        [url] = service.urls
        assert post(url + "x", b"{}") == 403
        assert post(url.partition("?")[0], b"{}") == 403
        assert post(url, b'{"number": 42}') == 204
        assert says(server, "later", "Success")["result"]["value"] == 42
        assert post(url, b'{"number": 43}') == 410


def test_kill_reaches_the_service(server: up_server.UpServer, service: Service) -> None:
    service.gate.clear()
    with executor(server):
        create(server, "killed", f"http://127.0.0.1:{service.port}/held")
        says(server, "killed", "Running")
        server.kiln("cancel", "killed")
        seen = says(server, "killed", "Killed")
        assert seen["reason"] == "Killed"
        [stopped] = [one for one in seen["conditions"] if one["type"] == "Stopped"]
        assert stopped["status"] == "True"


def test_deleted_task_leaves_no_request(server: up_server.UpServer, service: Service) -> None:
    service.gate.clear()
    with executor(server):
        create(server, "deleted", f"http://127.0.0.1:{service.port}/held")
        says(server, "deleted", "Running")
        waiting.wait_until(lambda: service.holding, what="the service holds it")
        server.kiln("delete", "task", "deleted")
        waiting.wait_until(lambda: not service.holding, what="its connection is gone")
        assert "deleted" not in server.kiln("get", "tasks").stdout


def post(url: str, body: bytes) -> int:
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        return error.code
