"""Tasks of a TaskCluster with `runtime: EphemeralContainers`: containers added to workers' Pods.

On the local node, where images are labels; tests/cluster has the same with a kubelet.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.executors.ephemeral import limits
from support import pages, waiting
from support import up_server as up_support

KILNWORK = "kilnwork.dev/v1alpha1"
CALL = '''
"""python call.py METHOD PATH [BODY]: one call on KILN_SOCKET; prints its JSON."""
import http.client, os, socket, sys
link = http.client.HTTPConnection("task")
link.sock = socket.socket(socket.AF_UNIX)
link.sock.connect(os.environ["KILN_SOCKET"])
link.request(sys.argv[1], sys.argv[2], body="".join(sys.argv[3:]) or None)
print(link.getresponse().read().decode())
'''


def cluster(name: str = "eph", *, workers: int = 1, **more: Any) -> dict[str, Any]:
    spec = {"replicas": workers, "slotsPerWorker": 2, "runtime": "EphemeralContainers", **more}
    return {
        "apiVersion": KILNWORK,
        "kind": "TaskCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def task(name: str, script: str, **spec: Any) -> dict[str, Any]:
    command = ["sh", "-c", script]
    spec = {"clusterName": "eph", "command": command, **spec}
    return {"apiVersion": KILNWORK, "kind": "Task", "metadata": {"name": name}, "spec": spec}


def apply(server: up_support.UpServer, *objects: dict[str, Any]) -> None:
    server.kiln("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))


def serve(directory: Path) -> Iterator[up_support.UpServer]:
    with up_support.serving(directory, slots=1) as made:
        (made.workdir / "call.py").write_text(CALL)
        apply(made, cluster())
        made.kiln(
            "wait", "taskcluster/eph", "--for", "condition=Available", "--timeout", "60s",
            timeout_s=90,
        )  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    yield from serve(tmp_path_factory.mktemp("ephemeral"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[up_support.UpServer]:
    """Yield a server that the test may kill."""
    yield from serve(tmp_path)


def status(server: up_support.UpServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get("tasks", name).get("status", {})
    return found


def ended(server: up_support.UpServer, name: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = status(server, name)
        return found if "finishTime" in found else {}

    return waiting.wait_until(look, what=f"{name} is over", timeout_s=60)


def appears(path: Path) -> None:
    waiting.wait_until(path.exists, what=f"{path.name} is there", timeout_s=60)


def pods(server: up_support.UpServer) -> list[dict[str, Any]]:
    """Return the worker Pods of the cluster."""
    found: list[dict[str, Any]] = server.core("pods")["items"]
    return [p for p in found if p["metadata"]["annotations"].get("kilnwork.dev/cluster") == "eph"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod["spec"].get("ephemeralContainers", [])
    return found


def processes(wanted: Callable[[bytes], bool]) -> list[int]:
    """Return the processes whose initial environment satisfies `wanted`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted((entry / "environ").read_bytes()):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_each_attempt_is_a_container_with_the_workers_contract(server: up_support.UpServer) -> None:
    numbers = {"apiVersion": KILNWORK, "kind": "TaskObject", "metadata": {"name": "numbers"}}
    child = '{"spec": {"command": ["sh", "-c", "echo 20 > $KILN_OUTPUT"]}}'
    script = f"""
        set -e
        call() {{ {sys.executable} call.py "$@"; }}
        call POST /progress '{{"fraction": 0.5, "message": "half"}}' > /dev/null
        id=$(call POST /tasks '{child}' | cut -d'"' -f4)
        call GET "/tasks/$id?wait=60" > child.json
        {sys.executable} -c 'if True:
            import json, os
            child = json.load(open("child.json"))["result"]
            given = json.load(open(os.environ["KILN_INPUT"]))["numbers"]["first"]
            print(json.dumps([child, given]), file=open(os.environ["KILN_OUTPUT"], "w"))'
        echo "$TASK_NAMESPACE/$TASK_NAME $MINE $(echo $(($$ > 0)))"
    """
    inputs = [{"name": "numbers", "object": "numbers"}]
    env = [{"name": "MINE", "value": "$(TASK_NAME) $$"}]
    apply(server, {**numbers, "data": {"first": 22}}, task("all", script, inputs=inputs, env=env))
    after = ended(server, "all")
    assert (after["state"], after["reason"]) == ("Success", "Succeeded"), after
    assert after["result"]["value"] == [20, 22]
    assert after["children"] == {"total": 1, "running": 0, "succeeded": 1, "failed": 0}
    assert server.kiln("logs", "all").stdout == "default/all $(TASK_NAME) $$ 1\n"
    [pod] = pods(server)
    uid = server.get("tasks", "all")["metadata"]["uid"].replace("-", "")
    assert f"t-{uid}-1-1" in [c["name"] for c in containers(pod)]
    assert after["podName"] == pod["metadata"]["name"]


ENDS: dict[str, tuple[dict[str, Any], str, str, int | None]] = {
    "code": ({"command": ["sh", "-c", "exit 3"]}, "Failed", "NonZeroExit", 3),
    "again": (
        {"command": ["sh", "-c", "exit 75"], "retry": {"maxAttempts": 1}},
        "Failed", "RetryRequested", 75,
    ),
    "no-program": ({"command": ["nonesuch"]}, "Failed", "CommandNotFound", 128),
    "link": (
        {"command": ["sh", "-c", 'ln -s /etc/hostname "$KILN_OUTPUT"'], "outputType": "bytes"},
        "Failed", "InvalidResult", 0,
    ),
    "no-json": ({"command": ["sh", "-c", "echo x > $KILN_OUTPUT"]}, "Failed", "InvalidResult", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_exit_is_judged_like_that_of_any_container(server: up_support.UpServer, name: str) -> None:
    spec, state, reason, code = ENDS[name]
    apply(server, task(f"end-{name}", "", **spec))
    after = ended(server, f"end-{name}")
    assert (after["state"], after["reason"], after.get("exitCode")) == (state, reason, code), after


@pytest.mark.parametrize("trap", ["trap 'exit 0' TERM", "trap '' TERM"])
def test_kill_is_confirmed(server: up_support.UpServer, trap: str) -> None:
    name = "gentle" if "exit" in trap else "stubborn"
    there = server.workdir / f"{name}-runs"
    script = f"{trap}; touch {there}; while :; do sleep 0.05; done"
    apply(server, task(name, script, timeouts={"killGraceSeconds": 1}))
    appears(there)
    server.kiln("cancel", name)
    after = ended(server, name)
    assert (after["state"], after["reason"]) == ("Killed", "Killed")
    stopped = [c["status"] for c in after["conditions"] if c["type"] == "Stopped"]
    assert stopped == ["True"]
    assert not processes(lambda env: f"TASK_NAME={name}".encode() in env.split(b"\0"))


@pytest.mark.parametrize("of", ["eph", "default"])
def test_image_is_only_a_label_and_the_task_reports_it(
    server: up_support.UpServer, of: str
) -> None:
    apply(server, task(f"image-{of}", "true", image="busybox", clusterName=of))
    after = ended(server, f"image-{of}")
    assert after["state"] == "Success"
    ignored = [c for c in after["conditions"] if c["type"] == "ImageIgnored"]
    assert [c["status"] for c in ignored] == ["True"], after
    assert "busybox" in ignored[0]["message"]


def test_image_of_a_spawned_command_is_reported_in_the_response(
    server: up_support.UpServer,
) -> None:
    apply(server, task("label", "true", image="busybox", clusterName="default"))
    assert ended(server, "label")["state"] == "Success"  # it waits until the workers are known
    child = '{"spec": {"image": "busybox", "command": ["sh", "-c", "echo 4 > $KILN_OUTPUT"]}}'
    script = f"""
        {sys.executable} call.py POST /tasks '{child}' > "$KILN_OUTPUT"
    """
    apply(server, task("spawns-label", script))
    after = ended(server, "spawns-label")
    assert after["state"] == "Success", after
    response = after["result"]["value"]
    assert "warnings" in response, response
    [warning] = response["warnings"]
    assert warning.startswith("spec.image busybox: images are labels on the nodes of the workers")


def test_python_calls_run_in_the_worker(server: up_support.UpServer) -> None:
    spec = {"call": {"function": "operator:add", "args": [1, 2]}, "command": []}
    made = task("call", "", **spec)
    del made["spec"]["command"]
    apply(server, made)
    assert ended(server, "call")["result"]["value"] == 3


def test_running_attempts_survive_a_killed_manager(
    own: up_support.UpServer, tmp_path: Path
) -> None:
    before, go = tmp_path / "before", tmp_path / "go"
    script = f"""
        echo start >> {tmp_path / "starts"}; touch {before}
        until [ -e {go} ]; do sleep 0.05; done
        echo '"kept"' > $KILN_OUTPUT
    """
    apply(own, task("away", script))
    appears(before)
    waiting.wait_until(lambda: status(own, "away").get("state") == "Running", what="it runs")
    own.kill()
    go.touch()
    own.start()
    after = ended(own, "away")
    assert (after["state"], after["attempts"], after.get("losses", 0)) == ("Success", 1, 0), after
    assert after["result"]["value"] == "kept"
    assert (tmp_path / "starts").read_text() == "start\n"


def test_worker_that_stops_waits_for_no_manager(own: up_support.UpServer, tmp_path: Path) -> None:
    """`kiln up` ends its controllers before its Pods."""
    starts = tmp_path / "starts"
    apply(own, task("stopped", f'echo >> {starts}; [ "$KILN_ATTEMPT" != 1 ] || exec sleep 600'))
    waiting.wait_until(lambda: status(own, "stopped").get("state") == "Running", what="it runs")
    assert own.stop() == 0
    own.start()
    after = ended(own, "stopped")
    assert (after["state"], after["attempts"], after["losses"]) == ("Success", 2, 1), after
    assert starts.read_text() == "\n\n"
    [worker] = pods(own)[0]["status"]["containerStatuses"]
    assert worker["lastState"]["terminated"]["exitCode"] == 0, worker  # 137: killed in the end


def test_killed_worker_ends_its_containers_which_run_again(
    own: up_support.UpServer, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f'echo $$ >> {pids}; [ "$KILN_ATTEMPT" = 2 ] || exec sleep 600'
    apply(own, task("lost", script, retry={"delaySeconds": 0.1}))
    appears(pids)
    waiting.wait_until(lambda: status(own, "lost").get("state") == "Running", what="it runs")
    [worker] = [pid for pid, command in own.leftovers().items() if _is_agent(pid, command)]
    os.kill(worker, signal.SIGKILL)
    after = ended(own, "lost")
    assert (after["state"], after["attempts"], after["losses"]) == ("Success", 2, 1), after
    first, second = map(int, pids.read_text().split())
    assert first != second
    assert not Path(f"/proc/{first}").exists()


def _is_agent(pid: int, command: str) -> bool:
    """Return whether this is the agent of the cluster's worker, whose parent is the node's shim."""
    if "-m kilnwork.worker" not in command:
        return False
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    comm = Path(f"/proc/{pid}/comm").read_text().strip()
    return b"KILN_RUNTIME=EphemeralContainers" in environment and not comm.startswith("kiln")


def test_pods_are_replaced_before_they_have_too_many(own: up_support.UpServer) -> None:
    most = 10
    annotations = {limits.CONTAINERS_ANNOTATION: str(most)}
    apply(own, cluster(workers=2, template={"metadata": {"annotations": annotations}}))
    start = own.core("pods")["metadata"]["resourceVersion"]
    apply(own, *(task(f"n{i}", "true") for i in range(60)))
    waiting.wait_until(
        lambda: all("finishTime" in t.get("status", {}) for t in own.get("tasks")["items"]),
        what="all are over",
        timeout_s=120,
    )
    seen: dict[str, int] = {}
    for change in own.core_changes("pods", since=start):
        pod = change["object"]
        if pod["metadata"]["annotations"].get("kilnwork.dev/cluster") == "eph":
            seen[pod["metadata"]["uid"]] = max(
                len(containers(pod)), seen.get(pod["metadata"]["uid"], 0)
            )
    ends = [t["status"] for t in own.get("tasks")["items"]]
    bad = [s for s in ends if (s["state"], s["attempts"], s.get("losses", 0)) != ("Success", 1, 0)]
    assert bad == []
    assert sum(seen.values()) >= 60, seen
    assert max(seen.values()) < 3 * most, seen
    assert len(seen) > 3, seen
    waiting.wait_until(lambda: len(pods(own)) == 2, what="two Pods are left", timeout_s=30)


def test_counter_runs_on_it_unchanged(tmp_path: Path) -> None:
    """With the rights of the TaskCluster's service account, and through the socket alone."""
    example = pages.ROOT / "examples" / "01-counter"
    server = up_support.UpServer(tmp_path / "data", workdir=example)
    server.start()
    try:
        text = (example / "cluster.yaml").read_text()
        text = text.replace("replicas: 3,", "replicas: 3, runtime: EphemeralContainers,")
        assert "runtime" in text
        server.kiln("apply", "-f", "-", stdin=text)
        first = (example / "start.yaml").read_text().replace('limit: "50"', 'limit: "8"')
        server.kiln("apply", "-f", "-", stdin=first)
        waiting.wait_until(
            lambda: any(t["metadata"]["name"] == "task-8" for t in server.get("tasks")["items"]),
            what="the last task exists",
            timeout_s=120,
        )
        assert ended(server, "task-8")["state"] == "Success"
        states = {t["status"]["state"] for t in server.get("tasks")["items"]}
        assert states == {"Success"}
        found = [p for p in server.core("pods")["items"] if containers(p)]
        assert sum(len(containers(p)) for p in found) == 9
    finally:
        code = server.stop()
    assert code == 0
