"""Python functions in Pods of their own under `kiln up`, where a container is a process."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from support import up_server as up_support
from support import waiting

PATIENCE_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("calls"), slots=2) as made:
        yield made


@pytest.fixture
def session(server: up_support.UpServer) -> Iterator[kiln.Session]:
    with kiln.connect(server.data / "kubeconfig") as made:
        yield made


@kiln.task
def on_a_worker(number: int) -> int:
    return number + 1


@kiln.task(pod={})
def in_a_pod(number: int) -> int:
    return on_a_worker.submit(number).result() + 10


@kiln.task(pod={"metadata": {"labels": {"nested": "yes"}}, "spec": {}})
def nested(number: int) -> list[Any]:
    """Return results of calls of both kinds, and of this function's own kind."""
    print("attempt", kiln.context().attempt)
    deeper = in_a_pod.submit(number)
    return [on_a_worker.submit(deeper).result(), deeper.result(), os.environ["TASK_NAME"]]


@kiln.task
def from_a_slot(number: int) -> int:
    return in_a_pod.submit(number).result()


@kiln.task(pod={}, retry_delay=0)
def fail(seen: str) -> None:
    attempt = kiln.context().attempt
    Path(seen, str(attempt)).touch()
    raise LookupError(f"no, {attempt}")


@kiln.task(pod={})
def stay(seen: str) -> None:
    """Record that the function runs, and how it is asked to stop."""
    path = Path(seen, str(kiln.context().attempt))
    path.write_text("runs")
    try:
        time.sleep(PATIENCE_S)
    except kiln.Cancelled:
        path.write_text("cancelled")
        raise


@kiln.task(pod={})
def wait_for(seen: str, go: str) -> int:
    with Path(seen).open("a") as file:
        file.write("begun\n")
    while not Path(go).exists():
        time.sleep(0.02)
    return on_a_worker.submit(1).result()


@kiln.task(pod={})
def die(code: int) -> None:
    if code:
        os._exit(code)
    os.kill(os.getpid(), signal.SIGKILL)


def pods(server: up_support.UpServer, **labels: str) -> list[dict[str, Any]]:
    """Return the Pods of calls, without workers."""
    wanted = {"kilnwork.dev/executor": "pod", **labels}
    return [
        pod
        for pod in server.core("pods")["items"]
        if wanted.items() <= pod["metadata"]["labels"].items()
    ]


def listed(server: up_support.UpServer, future: kiln.Future[Any]) -> dict[str, Any]:
    """Return the `kiln tasks` document of the future's task."""
    found = json.loads(server.kiln("tasks", "-o", "json").stdout)["items"]
    (task,) = [task for task in found if task["id"] == future.id]
    return dict(task)


def says(path: Path, text: str) -> None:
    waiting.wait_until(
        lambda: path.exists() and path.read_text() == text, what=f"{path} says {text}",
        timeout_s=PATIENCE_S,
    )  # fmt: skip


@pytest.mark.usefixtures("session")
def test_calls_of_pods_workers_and_drivers_mix(server: up_support.UpServer) -> None:
    number = on_a_worker.submit(0)
    future = nested.options(name="mixed").submit(number)
    assert future.result(PATIENCE_S) == [13, 12, "mixed"]
    assert from_a_slot.submit(5).result(PATIENCE_S) == 16
    waiting.wait_until(
        lambda: "attempt 1\n" in server.kiln("logs", future.id).stdout,
        what="its output is kept",
        timeout_s=PATIENCE_S,
    )
    waiting.wait_until(lambda: not pods(server), what="no Pod is left", timeout_s=PATIENCE_S)


@pytest.mark.usefixtures("session")
def test_exception_is_raised_after_all_retries(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no, 2") as caught:
        fail.options(retries=1).submit(str(tmp_path)).result(PATIENCE_S)
    assert "raise LookupError" in str(caught.value.__cause__)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


@pytest.mark.usefixtures("session")
def test_cancel_ends_its_pod(server: up_support.UpServer, tmp_path: Path) -> None:
    future = stay.submit(str(tmp_path))
    says(tmp_path / "1", "runs")
    future.cancel()
    with pytest.raises(kiln.Cancelled):
        future.result(PATIENCE_S)
    assert (tmp_path / "1").read_text() == "cancelled"
    task = listed(server, future)
    assert (task["state"], task["reason"]) == ("Killed", "Killed")
    mine = {"kilnwork.dev/task-id": future.id}
    waiting.wait_until(lambda: not pods(server, **mine), what="its Pod is gone")


@pytest.mark.usefixtures("session")
def test_timeout_ends_an_attempt_and_another_follows(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    """The timeout counts from the start of the container, perhaps before the function has begun."""
    future = stay.options(timeout=1, retries=1, retry_delay=0).submit(str(tmp_path))
    with pytest.raises(kiln.TaskTimedOut):
        future.result(PATIENCE_S)
    assert listed(server, future)["attempts"] == 2


@pytest.mark.usefixtures("session")
def test_process_that_dies_fails_or_is_lost(tmp_path: Path) -> None:
    with pytest.raises(kiln.TaskError, match="exited 3"):
        die.submit(3).result(PATIENCE_S)
    with pytest.raises(kiln.TaskError, match="lost 2 times, maxLosses is 1"):
        die.options(max_losses=1).submit(0).result(PATIENCE_S)


@pytest.mark.usefixtures("session")
def test_refused_pod_reports_the_reason() -> None:
    bad = {"spec": {"containers": [{"volumeMounts": [{"name": "no", "mountPath": "/x"}]}]}}
    future = in_a_pod.options(pod=bad).submit(1)
    with pytest.raises(kiln.TaskError, match="volumeMounts"):
        future.result(PATIENCE_S)


def test_task_may_have_a_call_in_a_pod(server: up_support.UpServer) -> None:
    spec = {"call": {"function": "operator:add", "args": [1, 2]}, "pod": {"spec": {}}}
    manifest = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "added"},
        "spec": spec,
    }
    server.kiln("apply", "-f", "-", stdin=json.dumps(manifest))
    server.kiln("wait", "added", "--timeout", f"{PATIENCE_S}s")
    status = server.get("tasks", "added")["status"]
    assert (status["state"], status["result"]["value"]) == ("Success", 3)
    assert status["podName"].startswith("added-")
    spec["args"] = ["x"]
    refused = server.kiln("apply", "-f", "-", stdin=json.dumps(manifest), check=False)
    assert refused.returncode
    assert "give either" in refused.stderr


def test_home_refuses_pod_calls() -> None:
    with kiln.start(slots=1):
        with pytest.raises(kiln.BadOption, match=r"pod=.*kiln\.start\(\) has no Pods.*connect"):
            in_a_pod.submit(1)
        with pytest.raises(kiln.BadOption, match=r"kiln\.start\(\) has no Pods"):
            from_a_slot.submit(1).result(PATIENCE_S)
        assert on_a_worker.submit(1).result(PATIENCE_S) == 2


def test_pod_call_continues_while_the_server_is_killed(tmp_path: Path) -> None:
    seen, go = tmp_path / "seen", tmp_path / "go"
    with up_support.serving(tmp_path, slots=1) as own:
        with kiln.connect(own.data / "kubeconfig"):
            future = wait_for.submit(str(seen), str(go))
            says(seen, "begun\n")
            own.kill()
            go.touch()
            own.start()
            assert future.result(PATIENCE_S) == 2
        assert seen.read_text() == "begun\n"
