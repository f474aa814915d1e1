"""Manifests of other projects as Tasks: of Furiko's proposal for executors, and Hera's.

`support/proposal` has the manifest of each executor verbatim, from Furiko's issue 63: the content
of a task template there is `spec` of a Task here. Each test adds what its manifest refers to.
"""

import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from kilnwork.api import api_resources, substitution
from kilnwork.kube import client, config
from support import argo_replay, object_subject, up_server, waiting

PROPOSAL = Path(__file__).parent.parent / "support" / "proposal"
SERVICE = "my-service.default.svc"
OPTIONS = {"option.user-name": "Ada", "option.image-tag": "3.20"}

EXECUTOR = """
import sys
from kilnwork.cli import main
from kilnwork.executors.http import guarded_connector
name, port = sys.argv[1:3]
real = guarded_connector.GuardedResolver.resolve
async def resolve(self, host, *rest, **more):
    found = await real(self, "127.0.0.1" if host == name else host, *rest, **more)
    return [{**one, "port": int(port)} for one in found]
guarded_connector.GuardedResolver.resolve = resolve
sys.argv[1:3] = []
sys.exit(main.main())
"""
"""`kiln` with what a user has in DNS: a name, and where it leads. Everything else is as always."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("proposal"), slots=1) as made:
        yield made


@pytest.fixture
async def admin(server: up_server.UpServer) -> AsyncIterator[client.Client]:
    loaded = config.load(server.data / "kubeconfig")
    async with client.Client(loaded, user_agent="test") as made:
        yield made


def proposed(executor: str) -> dict[str, Any]:
    """Return the manifest of an executor."""
    found: dict[str, Any] = yaml.safe_load((PROPOSAL / f"{executor}.yaml").read_text())
    return found


def apply(server: up_server.UpServer, name: str, spec: Any, *, check: bool = True) -> str:
    """Create a Task and return the standard error of `kiln apply`."""
    task = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}}
    return server.kiln(
        "apply", "-f", "-", stdin=json.dumps({**task, "spec": spec}), check=check
    ).stderr


def status(server: up_server.UpServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get("tasks", name).get("status") or {}
    return found


async def ends(server: up_server.UpServer, name: str) -> dict[str, Any]:
    """Wait until a task has finished and return its status."""

    def look() -> dict[str, Any]:
        seen = status(server, name)
        return seen if seen.get("state") in ("Success", "Failed", "Killed") else {}

    return await waiting.wait_until_async(look, what=f"{name} is over", timeout_s=60)


async def test_pod_runs_once_a_job_has_put_its_options_in(
    server: up_server.UpServer, admin: client.Client
) -> None:
    """Options belong to a JobConfig: a Task by itself has none, and reports that."""
    refused = apply(server, "pod", proposed("pod"), check=False)
    for name in OPTIONS:
        assert f"has ${{{name}}}, which is no variable" in refused
    apply(server, "pod", substitution.substitute(proposed("pod"), OPTIONS))
    assert (await ends(server, "pod"))["state"] == "Success"
    assert server.kiln("logs", "pod").stdout == "Hello world, Ada!\n"
    pod = await admin.get(api_resources.PODS, status(server, "pod")["podName"], "default")
    assert pod["metadata"]["annotations"]["custom-annotation"] == "value"
    assert pod["spec"]["containers"][0]["image"] == "alpine:3.20"


async def test_workflow_runs_in_both_of_its_forms_and_as_hera_writes_it(
    server: up_server.UpServer, admin: client.Client
) -> None:
    await admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, argo_replay.DEFINITION)
    given = proposed("workflow")["workflow"]
    whole = {
        "apiVersion": argo_replay.WORKFLOWS.api_version,
        "kind": "Workflow",
        "spec": given["spec"],
    }
    flows = {
        "parts": given,
        "text": {"manifest": yaml.safe_dump(whole)},
        **argo_replay.hera_workflows(),
    }
    for name, flow in flows.items():
        apply(server, name, {"workflow": flow})
    async with argo_replay.running(admin):
        for name in flows:
            seen = await ends(server, name)
            assert (seen["state"], seen["attempts"]) == ("Success", 1)
    listed = (await admin.list(argo_replay.WORKFLOWS, "default", type=dict)).items
    made = {one["metadata"]["ownerReferences"][0]["name"]: one for one in listed}
    assert made["parts"]["metadata"]["annotations"]["custom-annotation"] == "value"
    for name, flow in (flows | {"text": whole}).items():
        assert made[name]["spec"] == flow["spec"]


class Handler(BaseHTTPRequestHandler):
    """Service my-service: returns `jobs`, and records its requests."""

    jobs: ClassVar[Any] = [1, 2]
    seen: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
        response = json.dumps({"result": {"jobs": self.jobs}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def service(server: up_server.UpServer) -> Iterator[type[Handler]]:
    """Run my-service, and an executor that can resolve its name."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        argv = [sys.executable, "-c", EXECUTOR, SERVICE, str(serving.server_port)]
        with (server.data.parent / "executor.log").open("ab") as log:
            executor = subprocess.Popen(
                [*argv, "executor", "http", "--allow", "127.0.0.1"],
                stdout=log,
                stderr=log,
                env=server.environment,
            )
        try:
            yield Handler
        finally:
            executor.terminate()
            serving.shutdown()
            thread.join()
            assert executor.wait(60) == 0


async def test_http_request_is_sent_unchanged(
    server: up_server.UpServer, service: type[Handler]
) -> None:
    apply(server, "request", proposed("http"))
    seen = await ends(server, "request")
    assert seen["state"] == "Success", seen
    assert seen["result"]["value"] == [1, 2]
    [got] = service.seen
    assert got["path"] == "/my-path?param=value1"
    assert got["headers"]["Host"] == f"{SERVICE}:8080"
    assert got["headers"]["Content-Type"] == "application/json"
    assert json.loads(got["body"]) == {"mydata": {"field": 1}}

    service.jobs = None  # resultJsonPath decides: a response without jobs is no success
    apply(server, "no-jobs", proposed("http"))
    seen = await ends(server, "no-jobs")
    assert (seen["state"], seen["reason"]) == ("Failed", "ResponseRejected")


async def test_custom_resource_succeeds_when_its_controller_says_so(
    server: up_server.UpServer, admin: client.Client
) -> None:
    await admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, object_subject.DEFINITION)
    apply(server, "book", proposed("custom-resource"))

    async def look() -> list[dict[str, Any]]:
        return list((await admin.list(object_subject.BOOKS, "default", type=dict)).items)

    [book] = await waiting.wait_until_async(look, what="the Book is there")
    name = book["metadata"]["name"]
    assert name.startswith("google-sre-book-")
    for phase in ("Printing", "Succeeded"):
        assert status(server, "book").get("state") != "Success"
        new = {"status": {"phase": phase}}
        await admin.merge_patch(object_subject.BOOKS, name, new, "default", subresource="status")
    assert (await ends(server, "book"))["state"] == "Success"
