"""When a probe changes its mind, how ports are named, and which redirects are followed."""

from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from kilnwork.controlplane.node import pod_types, probes
from kilnwork.controlplane.node import shim_container as containers
from kilnwork.kit import clock
from support import waiting

CONTAINER = pod_types.Container(name="c")
RECORD = containers.ContainerRecord("uid/c/0", "/nowhere")
ELSEWHERE = "Probe terminated redirects, Response body: moved"


def verdicts(probe: pod_types.Probe, results: str, *, healthy: bool = False) -> list[bool | None]:
    """What each result changes; `+` passes, `-` fails."""
    verdict = probes.ProbeResult(probe, healthy=healthy)
    return [verdict.take(passed=result == "+") for result in results]


def test_first_success_changes_the_result() -> None:
    assert verdicts(pod_types.Probe(), "-+") == [None, True]


def test_failures_must_be_consecutive() -> None:
    assert verdicts(pod_types.Probe(), "+--+---") == [True, None, None, None, None, None, False]


def test_liveness_starts_as_healthy() -> None:
    assert verdicts(pod_types.Probe(), "+---", healthy=True) == [None, None, None, False]


def test_readiness_success_threshold_is_respected() -> None:
    probe = pod_types.Probe(success_threshold=2, failure_threshold=1)
    assert verdicts(probe, "++-+-++") == [None, True, False, None, None, None, True]


def test_threshold_of_zero_means_the_default() -> None:
    assert verdicts(pod_types.Probe(failure_threshold=0), "+---") == [True, None, None, False]


def test_port_is_found_by_number_or_name() -> None:
    container = pod_types.Container(
        name="c", ports=(pod_types.Port(container_port=8080, name="web"),)
    )
    assert probes.port_number(container, 80) == 80
    assert probes.port_number(container, "81") == 81
    assert probes.port_number(container, "web") == 8080
    with pytest.raises(ValueError, match="couldn't find port: db"):
        probes.port_number(container, "db")


def test_probe_of_the_api_server_is_decoded() -> None:
    sent = {
        "httpGet": {"path": "/healthz", "port": "web", "scheme": "HTTPS"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    probe = msgspec.convert(sent, pod_types.Probe)
    assert probe.http_get is not None
    assert (probe.http_get.port, probe.http_get.scheme) == ("web", "HTTPS")


class World:
    """Probes of a container with an HTTP server, and what they found."""

    def __init__(self) -> None:
        self.found: list[probes.ProbeFinding] = []
        self.asked: list[str] = []
        self.port = 0
        self.probers = probes.Probers(
            self.run, self.on_change, address="127.0.0.1", now=clock.ManualClock()
        )

    async def run(self, _: str, argv: Sequence[str], __: float) -> tuple[int, bytes]:
        return int(argv[0]), b"output"

    def on_change(self, _: containers.ContainerRecord, finding: probes.ProbeFinding) -> None:
        self.found.append(finding)

    async def respond(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        targets = {
            "/here": "/ok",
            "/to-missing": "/missing",
            "/elsewhere": f"http://localhost:{self.port}/ok",
            "/loop": "/loop",
        }
        if request.path in targets:
            headers = {"Location": targets[request.path]}
            return web.Response(status=302, headers=headers, text="moved")
        return web.Response(status={"/ok": 200, "/nowhere": 302}.get(request.path, 404))

    def action(self, path: str) -> pod_types.HttpAction:
        return pod_types.HttpAction(port=self.port, path=path)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    app = web.Application()
    app.router.add_get("/{path}", made.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await made.probers.stop()
    await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("/ok", (True, "")),
        ("/here", (True, "")),
        ("/to-missing", (False, "HTTP probe failed with statuscode: 404")),
        ("/elsewhere", (True, ELSEWHERE)),
        ("/nowhere", (True, "Probe terminated redirects, Response body: ")),
    ],
)
async def test_only_redirects_to_the_same_host_are_followed(
    world: World, path: str, outcome: tuple[bool, str]
) -> None:
    assert await world.probers.http(CONTAINER, world.action(path)) == outcome
    assert len(world.asked) == {"/here": 2, "/to-missing": 2}.get(path, 1)


async def test_endless_redirects_fail_a_probe(world: World) -> None:
    probe = pod_types.Probe(http_get=world.action("/loop"))
    world.probers.watch(msgspec.structs.replace(CONTAINER, readiness_probe=probe), RECORD)
    await waiting.wait_until_async(lambda: world.found, what="a result")
    text = "Readiness probe failed: stopped after 10 redirects"
    assert world.found == [probes.ProbeFinding("Readiness", None, text, "Unhealthy")]
    assert len(world.asked) == 10


async def test_warning_of_a_probe_is_reported_with_its_success(world: World) -> None:
    probe = pod_types.Probe(http_get=world.action("/elsewhere"))
    world.probers.watch(msgspec.structs.replace(CONTAINER, readiness_probe=probe), RECORD)
    await waiting.wait_until_async(lambda: world.found, what="a result")
    text = f"Readiness probe warning: {ELSEWHERE}"
    assert world.found == [probes.ProbeFinding("Readiness", True, text, "ProbeWarning")]


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("0", probes.ProbeFinding("Readiness", True)),
        ("1", probes.ProbeFinding("Readiness", False, "Readiness probe failed: output")),
    ],
)
async def test_output_of_a_command_is_reported_with_a_failure_only(
    world: World, code: str, finding: probes.ProbeFinding
) -> None:
    action = pod_types.ExecAction(command=(code,))
    probe = pod_types.Probe(exec=action, failure_threshold=1)
    world.probers.watch(msgspec.structs.replace(CONTAINER, readiness_probe=probe), RECORD)
    await waiting.wait_until_async(lambda: world.found, what="a result")
    assert world.found == [finding]
