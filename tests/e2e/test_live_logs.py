"""`kiln logs` of tasks that do not run in slots: while they run, and afterwards."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import up_server as up_support
from support import waiting

pytestmark = pytest.mark.timeout(300)  # a dozen programs start one after the other

KILNWORK = "kilnwork.dev/v1alpha1"
EPHEMERAL = {
    "apiVersion": KILNWORK,
    "kind": "TaskCluster",
    "metadata": {"name": "eph"},
    "spec": {"replicas": 1, "slotsPerWorker": 2, "runtime": "EphemeralContainers"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("logs"), slots=1) as made:
        yield made


def script(gate: Path, *, before: str, after: str) -> list[str]:
    return ["sh", "-c", f"echo {before}; until [ -e {gate} ]; do sleep 0.05; done; echo {after}"]


def apply(server: up_support.UpServer, name: str, spec: dict[str, Any]) -> None:
    task = {"apiVersion": KILNWORK, "kind": "Task", "metadata": {"name": name}, "spec": spec}
    server.kiln("apply", "-f", "-", stdin=json.dumps(task))


def in_pod(*commands: list[str], **pod: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{number}", "image": "any", "command": command}
        for number, command in enumerate(commands, 1)
    ]
    return {"pod": {"spec": {"containers": containers, **pod}}}


@contextlib.contextmanager
def following(
    server: up_support.UpServer, name: str, out: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `kiln logs -f` with its output in a file; end it at the latest on exit."""
    with out.open("wb") as file:
        process = subprocess.Popen(
            [up_support.KILN, "logs", "-f", name],
            stdout=file, stderr=subprocess.PIPE, env=server.environment, cwd=server.workdir,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def comes(out: Path, text: str) -> None:
    waiting.wait_until(lambda: out.read_text() == text, what=f"{text!r} is printed", timeout_s=60)


@pytest.mark.parametrize("runs_in", ["pod", "ephemeral container"])
def test_live_output_equals_the_stored_output(
    server: up_support.UpServer, tmp_path: Path, runs_in: str
) -> None:
    gate, out = tmp_path / "gate", tmp_path / "out"
    name = runs_in.split()[0]
    command = script(gate, before="one", after="two")
    if runs_in == "pod":
        spec = in_pod(command)
    else:
        server.kiln("apply", "-f", "-", stdin=json.dumps(EPHEMERAL))
        spec = {"clusterName": "eph", "command": command}
    apply(server, name, spec)
    with following(server, name, out) as process:
        comes(out, "one\n")
        assert server.kiln("logs", name).stdout == "one\n"
        assert process.poll() is None
        gate.touch()
        assert process.wait(60) == 0
    assert out.read_text() == "one\ntwo\n"
    assert server.kiln("logs", name).stdout == "one\ntwo\n"


def test_lines_of_several_containers_begin_with_their_names(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    gate, out = tmp_path / "gate", tmp_path / "out"
    commands = [script(gate, before=f"{n}a", after=f"{n}b") for n in (1, 2)]
    apply(server, "several", in_pod(*commands))
    with following(server, "several", out) as process:
        waiting.wait_until(
            lambda: sorted(out.read_text().splitlines()) == ["[c1] 1a", "[c2] 2a"],
            what="both have printed a line",
            timeout_s=60,
        )
        gate.touch()
        assert process.wait(60) == 0
    lines = out.read_text().splitlines()
    assert sorted(lines) == ["[c1] 1a", "[c1] 1b", "[c2] 2a", "[c2] 2b"]
    assert server.kiln("logs", "several").stdout.splitlines() == lines


def test_waiting_pod_reports_its_reason_instead_of_output(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    apply(server, "waits", in_pod(["true"], nodeSelector={"is-not": "there"}))
    waiting.wait_until(
        lambda: server.get("tasks", "waits").get("status", {}).get("reason") == "Unschedulable",
        what="the Pod has no node",
        timeout_s=60,
    )
    done = server.kiln("logs", "waits")
    said = done.stderr.strip()
    assert done.stdout == ""
    assert said.startswith(
        "task waits has printed nothing yet: it is Staging (Unschedulable): Pod waits-"
    ), said
    why = server.kiln("why", "waits").stdout
    assert "is Staging (Unschedulable): Pod waits-" in why
    with following(server, "waits", tmp_path / "out") as process:
        assert process.stderr is not None
        assert process.stderr.readline().decode().strip() == said
    server.kiln("delete", "task/waits")
