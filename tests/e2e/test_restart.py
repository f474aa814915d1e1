"""A server that stops, crashes and restarts: tasks, results, numbers and ports are kept."""

import json
import signal
from pathlib import Path
from typing import Any

from support import up_server as up_support
from support import waiting


def status(server: up_support.UpServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get("tasks", name).get("status", {})
    return found


def running(server: up_support.UpServer, name: str) -> None:
    """Wait until the Task runs."""
    waiting.wait_until(lambda: status(server, name).get("state") == "Running", what=f"{name} runs")


def test_crash_of_the_server_interrupts_no_task(up: up_support.UpServer) -> None:
    script = 'sleep 3; echo "\\"done\\"" > "$KILN_OUTPUT"; echo printed'
    up.kiln("run", "--name", "t", "--", "sh", "-c", script)
    running(up, "t")
    up.kill()
    up.start()
    up.kiln("wait", "t", "--timeout", "60s")
    after = status(up, "t")
    assert (after["state"], after["attempts"], after.get("losses", 0)) == ("Success", 1, 0)
    assert after["result"]["value"] == "done"
    assert up.kiln("logs", "t").stdout == "printed\n"


def test_stopping_the_server_in_order_is_charged_to_no_task(up: up_support.UpServer) -> None:
    script = 'test "$KILN_ATTEMPT" -gt 1 || sleep 60'
    up.kiln("run", "--name", "t", "--", "sh", "-c", script)
    running(up, "t")
    assert up.stop() == 0
    assert up.leftovers() == {}
    up.start()
    up.kiln("wait", "t", "--timeout", "60s")
    after = status(up, "t")
    assert (after["state"], after["attempts"], after.get("losses", 0)) == ("Success", 2, 1)


def test_numbers_ports_and_objects_survive_a_restart(up: up_support.UpServer) -> None:
    up.kiln("run", "--name", "t", "--watch", "--", "true")
    before = up.get("tasks", "t")
    endpoints = json.loads((up.data / "endpoints.json").read_text())
    up.kill()
    up.start()
    assert up.get("tasks", "t")["metadata"]["uid"] == before["metadata"]["uid"]
    up.kiln("run", "--name", "u", "--watch", "--", "true")
    versions = [int(o["metadata"]["resourceVersion"]) for o in (before, up.get("tasks", "u"))]
    assert versions[0] < versions[1]
    again = json.loads((up.data / "endpoints.json").read_text())
    assert (again["kubernetes"], again["http"]) == (endpoints["kubernetes"], endpoints["http"])
    assert again["epoch"] > endpoints["epoch"]


def test_another_workdir_reaches_workers_that_outlived_a_crash(
    up: up_support.UpServer, tmp_path: Path
) -> None:
    up.kiln("run", "--watch", "--", "true")
    up.kill()
    up.workdir = tmp_path / "elsewhere"
    up.workdir.mkdir()
    up.start()

    def there() -> bool:
        return up.kiln("run", "--watch", "--", "pwd").stdout.strip() == str(up.workdir)

    waiting.wait_until(there, what="tasks run in the new working directory")


def test_closing_the_terminal_stops_the_server_in_order(up: up_support.UpServer) -> None:
    assert up.process is not None
    up.process.send_signal(signal.SIGHUP)
    assert up.process.wait(25) == 0
    assert up.leftovers() == {}


def test_crash_of_the_server_starts_no_pod_twice(up: up_support.UpServer) -> None:
    """At every stage of its attempt: only declared, created, running, finished."""
    starts = up.workdir / "starts"
    names = [f"p{number}" for number in range(4)]
    for number, name in enumerate(names):
        script = f"echo $TASK_NAME/$KILN_ATTEMPT >> {starts}; sleep {number}"
        container = {"name": "main", "image": "x", "command": ["sh", "-c", script]}
        task = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"pod": {"spec": {"containers": [container]}}},
        }
        up.kiln("apply", "-f", "-", stdin=json.dumps(task))
        if number == 3:
            running(up, name)
        up.kill()
        up.start()
    for name in names:
        up.kiln("wait", name, "--timeout", "60s")
        after = status(up, name)
        assert (after["state"], after["attempts"], after.get("losses", 0)) == ("Success", 1, 0)
    assert sorted(starts.read_text().split()) == [f"{name}/1" for name in names]
    waiting.wait_until(lambda: held_pods(up) == [], what="no Pod is held any more")


def held_pods(server: up_support.UpServer) -> list[str]:
    """Return the names of Pods with finalizers."""
    listed = json.loads(server.kiln("get", "pods", "-o", "json").stdout)
    return [p["metadata"]["name"] for p in listed["items"] if p["metadata"].get("finalizers")]


def test_job_still_waits_for_a_jobconfig_after_a_restart(
    up: up_support.UpServer, tmp_path: Path
) -> None:
    """The choice is not in memory: the new server chooses the same Job."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    waits = f"until [ -e {gate} ]; do sleep 0.1; done; echo load >> {log}"
    needs = {"dependsOn": [{"kind": "JobConfig", "name": "load"}]}
    for name, script, more in (("load", waits, {}), ("use", f"echo use >> {log}", needs)):
        spec: dict[str, Any] = {
            "concurrency": {"policy": "Allow"},
            "template": {"spec": {"taskTemplate": {"command": ["sh", "-c", script]}}},
            **more,
        }
        body = {"kind": "JobConfig", "metadata": {"name": name}, "spec": spec}
        text = json.dumps({"apiVersion": "kilnwork.dev/v1alpha1", **body})
        up.kiln("apply", "-f", "-", stdin=text)
        up.kiln("run-job", name, "--name", f"{name}-1")

    def message() -> str:
        return str((up.get("jobs", "use-1").get("status") or {}).get("message"))

    expected = "Job load-1 of JobConfig load is not over yet"
    waiting.wait_until(lambda: message() == expected, what="it waits", timeout_s=30)
    up.kill()
    up.start()
    up.kiln("run-job", "load", "--name", "load-2")
    gate.touch()
    waiting.wait_until(
        lambda: (up.get("jobs", "use-1").get("status") or {}).get("phase") == "Succeeded",
        what="both have run",
        timeout_s=60,
    )
    assert log.read_text().split()[0] == "load"
    assert "use" in log.read_text().split()
