"""`kiln retry --failed`, `suspend` and `resume` against a whole `kiln up`."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as sdk
from kilnwork.cli import exits
from support import in_process_cli, up_server, waiting

OK, FAILED = exits.Exit.OK, exits.Exit.TASK_FAILED

PARENT = """
post() {
  curl -s --unix-socket $KILN_SOCKET -H 'content-type: application/json' -d "$1" http://x/tasks |
    sed 's/.*"id":"\\([^"]*\\)".*/\\1/'
}
one=$(post '{"name": "well", "spec": {"command": ["sh", "-c", "echo well >> LOG"]}}')
two=$(post '{"name": "badly", "spec": {"command": ["sh", "-c", "echo badly >> LOG; test -e GATE"]}}')
for task in $one $two; do
  curl -s --unix-socket $KILN_SOCKET "http://x/tasks/$task?wait=30" | grep -q '"state":"Success"' || exit 1
done
"""  # noqa: E501 - a script


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("up"), slots=4) as made:
        yield made


@pytest.fixture
def kiln(
    server: up_server.UpServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> in_process_cli.Kiln:
    return in_process_cli.kiln_of(server.data, monkeypatch, capfd)


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def apply(server: up_server.UpServer, *items: dict[str, Any]) -> None:
    server.kiln("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, items)))


@pytest.mark.curl
def test_retry_runs_a_parent_and_its_failed_child(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    script = PARENT.replace("LOG", str(log)).replace("GATE", str(gate))
    apply(server, manifest("Task", "parent", {"command": ["sh", "-c", script]}))
    assert kiln("wait", "parent").code == FAILED
    gate.touch()
    assert kiln("retry", "badly", "--failed", "--wait").out == (
        "parent starts again and will run badly again\n"
    )
    assert kiln("wait", "parent").code == OK
    assert sorted(log.read_text().split()) == ["badly", "badly", "well"]
    children = json.loads(kiln("get", "task", "parent", "-o", "json").out)["status"]["children"]
    assert (children["total"], children["succeeded"]) == (2, 2)
    refused = kiln("retry", "parent", "--failed")
    assert (refused.code, "nothing in it has failed" in refused.err) == (exits.Exit.FAILED, True)


def test_retry_runs_dependent_task_objects_in_order(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    made = {"command": ["sh", "-c", f"test -e {gate} && echo 5 > $KILN_OUTPUT"]}
    taken = {"command": ["sh", "-c", "cat $KILN_INPUT > $KILN_OUTPUT"]}
    apply(
        server,
        manifest("Task", "made", made),
        manifest("Task", "taken", taken | {"inputs": [{"name": "x", "task": "made"}]}),
        manifest("Task", "taken-too", taken | {"inputs": [{"name": "y", "task": "taken"}]}),
        manifest("Task", "well", {"command": ["true"]}),
    )
    assert kiln("wait", "taken-too").code == FAILED
    gate.touch()
    done = kiln("retry", "taken", "--failed", "--wait")
    assert (done.code, done.out) == (OK, "taken starts again as run 2, with 2 more around it\n")
    assert kiln("wait", "taken-too").code == OK
    assert json.loads(kiln("result", "taken-too").out) == {"y": {"x": 5}}
    assert server.get("tasks", "well")["status"]["run"] == 1


def test_retry_runs_a_job_before_its_dependent(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    first = ["sh", "-c", f"echo x >> {log}; test -e {gate}"]
    second = ["sh", "-c", f"test $(wc -l < {log}) = 2"]
    apply(
        server,
        manifest("Job", "first", {"template": {"taskTemplate": {"command": first}}}),
        manifest("Job", "second", {
            "dependsOn": [{"name": "first"}], "template": {"taskTemplate": {"command": second}},
        }),
    )  # fmt: skip
    assert kiln("wait", "job/second").code == FAILED
    gate.touch()
    done = kiln("retry", "job/second", "--failed", "--wait")
    assert (done.code, done.out) == (
        OK,
        "job/second starts again as run 2, with 1 more around it\n",
    )


def test_task_of_a_job_is_retried_through_its_job(
    server: up_server.UpServer, kiln: in_process_cli.Kiln
) -> None:
    apply(server, manifest("Job", "bad", {"template": {"taskTemplate": {"command": ["false"]}}}))
    assert kiln("wait", "job/bad").code == FAILED
    refused = kiln("retry", "bad-0", "--failed")
    assert (refused.code, "works for a job" in refused.err) == (exits.Exit.FAILED, True)


def test_task_of_a_deleted_job_does_not_run_again(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = ["sh", "-c", f"echo x >> {log}; false"]
    apply(server, manifest("Job", "gone", {"template": {"taskTemplate": {"command": command}}}))
    assert kiln("wait", "job/gone").code == FAILED
    [task] = [
        item for item in json.loads(kiln("tasks", "-o", "json").out)["items"]
        if item["name"] == "gone-0"
    ]  # fmt: skip
    assert kiln("delete", "job/gone").code == OK

    def refused() -> str:
        return kiln("retry", "gone-0", "--failed").err

    waiting.wait_until(lambda: "was part of a job that is deleted" in refused(), what="it is gone")
    short = task["id"][-8:]
    plain = kiln("retry", task["id"])
    assert (plain.code, f"`kiln delete task {short}` forgets it" in plain.err) == (1, True)
    assert log.read_text() == "x\n"
    assert kiln("delete", "task", short).code == OK
    assert "gone-0" not in kiln("tasks").out


def test_suspended_job_that_has_ended_is_resumed_and_runs_again(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    command = ["sh", "-c", f"touch {begun}; while ! test -e {gate}; do sleep 0.05; done; false"]
    apply(server, manifest("Job", "held", {"template": {"taskTemplate": {"command": command}}}))
    waiting.wait_until(begun.exists, what="it runs")
    assert kiln("suspend", "job/held").code == OK
    gate.touch()
    assert kiln("wait", "job/held").code == FAILED
    refused = kiln("retry", "job/held", "--failed")
    assert (refused.code, "`kiln resume job/held` first" in refused.err) == (1, True)
    resumed = kiln("resume", "job/held")
    assert resumed.code == OK
    assert resumed.out == (
        "Job held is already Failed, and is no longer suspended: "
        "`kiln retry job/held --failed` runs again what failed\n"
    )
    assert kiln("retry", "job/held", "--failed", "--wait").code == FAILED
    assert server.get("jobs", "held")["status"]["run"] == 2


def test_second_retry_follows_the_first(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = f"test $KILN_RUN = 2 || exit 1; while ! test -e {gate}; do sleep 0.05; done"
    apply(server, manifest("Task", "merge", {"command": ["sh", "-c", script]}))
    assert kiln("wait", "merge").code == FAILED
    assert kiln("retry", "merge", "--failed").out == "merge starts again as run 2\n"
    waiting.wait_until(
        lambda: server.get("tasks", "merge")["status"].get("run") == 2, what="it runs again"
    )
    second = kiln("retry", "merge", "--failed")
    assert (second.code, second.out) == (OK, "merge is running again already, as run 2\n")
    gate.touch()
    assert kiln("wait", "merge").code == OK


@sdk.task
def fail_once_then_wait(directory: str) -> None:
    """Raise on the first run, then wait for a file."""
    if not (Path(directory) / "failed").exists():
        (Path(directory) / "failed").touch()
        raise ValueError("not yet")
    while not (Path(directory) / "gate").exists():
        time.sleep(0.05)


@pytest.mark.parametrize("option", [(), ("--failed",)], ids=["plain", "failed"])
def test_second_retry_of_a_call_follows_the_first(
    server: up_server.UpServer,
    kiln: in_process_cli.Kiln,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.data / "kubeconfig"))
    with sdk.connect():
        future = fail_once_then_wait.submit(str(tmp_path))
        assert future.exception(60) is not None
    assert kiln("retry", future.id, *option).out == f"{future.id} starts again as run 2\n"
    second = kiln("retry", future.id, *option)
    assert (second.code, second.out) == (
        OK,
        f"{future.id} is running again already, as run 2\n",
    )
    (tmp_path / "gate").touch()
    assert kiln("wait", future.id).code == OK


def test_tasks_are_suspended_and_resumed(
    server: up_server.UpServer, kiln: in_process_cli.Kiln
) -> None:
    apply(server, manifest("Task", "held", {"command": ["true"], "suspend": True}))
    assert kiln("resume", "held").out == "held is resumed\n"
    assert kiln("wait", "held").code == OK
    over = kiln("suspend", "held")
    assert (over.code, "is already Success" in over.err) == (exits.Exit.FAILED, True)


@pytest.mark.parametrize(("alias", "command"), [("kill", "cancel"), ("pause", "suspend")])
def test_former_names_work_and_are_not_listed(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, alias: str, command: str
) -> None:
    name = f"by-{alias}"
    apply(server, manifest("Task", name, {"command": ["true"], "suspend": True}))
    waiting.wait_until(lambda: server.get("tasks", name).get("status"), what="it is seen")
    assert kiln(alias, name).code == OK
    assert f"  {alias} " not in kiln("--help").out
    assert f"  {command} " in kiln("--help").out


def test_mutually_exclusive_options_are_refused(kiln: in_process_cli.Kiln) -> None:
    assert kiln("retry", "x", "--failed", "--force").code == exits.Exit.USAGE
    refused = kiln("retry", "syncset/x")
    assert (refused.code, "kiln replay x" in refused.err) == (exits.Exit.USAGE, True)
