"""The worker contract in the Pods of tasks: input, result, children and progress for any image.

Containers of the local node are processes of this machine, so that "any image" is `sh` and a plain
Python here; tests/cluster has the same with a kubelet.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support import up_server as up_support
from support import waiting

CALL = '''
"""python call.py METHOD PATH [BODY]: one call on KILN_SOCKET; prints its JSON."""
import http.client, os, socket, sys
link = http.client.HTTPConnection("task")
link.sock = socket.socket(socket.AF_UNIX)
link.sock.connect(os.environ["KILN_SOCKET"])
link.request(sys.argv[1], sys.argv[2], body="".join(sys.argv[3:]) or None)
print(link.getresponse().read().decode())
'''
CHILD = '{"spec": {"command": ["sh", "-c", "echo 20 > $KILN_OUTPUT"]}}'
SIDECAR = "kilnwork.worker.sidecar"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("pods"), slots=2) as made:
        (made.workdir / "call.py").write_text(CALL)
        yield made


def container(script: str, name: str = "main") -> dict[str, Any]:
    command = ["sh", "-c", f'call() {{ {sys.executable} call.py "$@"; }}; {script}']
    return {"name": name, "image": "any", "command": command}


def task(
    name: str,
    *containers: dict[str, Any],
    metadata: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    made_of = {"containers": list(containers), **(pod or {})}
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name},
        "spec": {"pod": {"metadata": metadata or {}, "spec": made_of}, **spec},
    }


def apply(server: up_support.UpServer, *objects: dict[str, Any]) -> None:
    server.kiln("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))


def status(server: up_support.UpServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get("tasks", name).get("status", {})
    return found


def ended(server: up_support.UpServer, name: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = status(server, name)
        return found if "finishTime" in found else {}

    return waiting.wait_until(look, what=f"{name} is over", timeout_s=60)


def state(seen: Mapping[str, Any]) -> tuple[Any, Any]:
    return seen.get("state"), seen.get("reason")


def running(server: up_support.UpServer, name: str, path: Path) -> None:
    """Wait until the task has created that file."""
    waiting.wait_until(path.exists, what=f"{name} runs", timeout_s=60)


def sidecar_of(server: up_support.UpServer, name: str) -> int:
    """Return the pid of the sidecar of a task on this machine."""
    mark = f"KILN_TASK_ID={server.get('tasks', name)['metadata']['uid']}".encode()

    def find() -> int:
        for pid, command in server.leftovers().items():
            if SIDECAR in command and mark in Path(f"/proc/{pid}/environ").read_bytes():
                return pid
        return 0

    return waiting.wait_until(find, what=f"{name} has a sidecar")


def test_pod_has_inputs_children_progress_and_a_result(server: up_support.UpServer) -> None:
    data = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "TaskObject"}
    thing = {**data, "metadata": {"name": "numbers"}, "data": {"first": 22}}
    seen = server.workdir / "seen"
    script = f"""
        set -e
        call POST /progress '{{"fraction": 0.5, "message": "half"}}'
        id=$(call POST /tasks '{CHILD}' | cut -d'"' -f4)
        until [ -e {seen} ]; do sleep 0.05; done
        call GET "/tasks/$id?wait=60" > child.json
        {sys.executable} -c 'if True:
            import json, os
            child = json.load(open("child.json"))["result"]
            given = json.load(open(os.environ["KILN_INPUT"]))["numbers"]["first"]
            print(json.dumps([child, given]), file=open(os.environ["KILN_OUTPUT"], "w"))'
        echo "$TASK_NAME $(ls $KILN_DIR | tr '\\n' ' ')"
    """
    inputs = [{"name": "numbers", "object": "numbers"}]
    apply(server, thing, task("all", container(script), inputs=inputs))
    waiting.wait_until(
        lambda: "half" in server.kiln("why", "all", check=False).stdout,
        what="progress is shown",
        timeout_s=60,
    )
    seen.touch()
    after = ended(server, "all")
    assert state(after) == ("Success", "Succeeded"), after
    assert after["result"]["value"] == [20, 22]
    assert after["children"] == {"total": 1, "running": 0, "succeeded": 1, "failed": 0}
    assert server.kiln("logs", "all").stdout.endswith("all input output socket \n")


BAD: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "not-json": ("echo nonsense > $KILN_OUTPUT", {}, "InvalidResult", "is not JSON"),
    "empty": (": > $KILN_OUTPUT", {}, "InvalidResult", "is empty"),
    "directory": ("mkdir $KILN_OUTPUT", {}, "InvalidResult", "not a regular file"),
    "link": ("ln -s /etc/hostname $KILN_OUTPUT", {}, "InvalidResult", "is a symbolic link"),
    "pipe": ("mkfifo $KILN_OUTPUT", {}, "InvalidResult", "not a regular file"),
    "not-utf8": (
        'head -c 70000 /dev/zero | tr "\\0" x | sed "s/^/\\"/; s/$/\\xff\\"/" > $KILN_OUTPUT',
        {},
        "InvalidResult",
        "utf-8",
    ),
    "huge": (
        "truncate -s 2G $KILN_OUTPUT", {"outputType": "bytes"}, "ResultTooLarge", "2147483648",
    ),
}  # fmt: skip


def test_invalid_result_fails_the_task_with_the_reason(server: up_support.UpServer) -> None:
    bad = [
        task(f"bad-{name}", container(script), retry={"maxLosses": 0}, **spec)
        for name, (script, spec, _, _) in BAD.items()
    ]
    apply(server, *bad)
    for name, (_, _, reason, said) in BAD.items():
        after = ended(server, f"bad-{name}")
        assert state(after) == ("Failed", reason), after
        assert said in after["message"]


def test_results_of_any_size_arrive_complete(server: up_support.UpServer) -> None:
    def write(size: int) -> str:
        text = f'head -c {size - 2} /dev/zero | tr "\\0" 7'
        return f"(printf '\"'; {text}; printf '\"') > $KILN_OUTPUT"

    sizes = {"small": 15, "status": 8000, "journal": 60_000, "blob": 3_000_000}
    tasks = [task("nothing", container("true"))]
    tasks.append(task("number", container(f"echo {'7' * 30} > $KILN_OUTPUT")))
    for name, size in sizes.items():
        tasks.append(task(f"json-{name}", container(write(size))))
        tasks.append(task(f"bytes-{name}", container(write(size)), outputType="bytes"))
    apply(server, *tasks)
    kinds = {"json": "application/json", "bytes": "application/octet-stream"}
    for name, size in sizes.items():
        for kind, media_type in kinds.items():
            found = ended(server, f"{kind}-{name}")["result"]
            said = found.get("mediaType", "application/json"), found["sizeBytes"]
            assert said == (media_type, size), (kind, name, found)
    digest = status(server, "bytes-blob")["result"]["digest"].removeprefix("sha256:")
    kept = server.data / "blobs" / "default" / digest[:2] / digest
    assert kept.read_bytes() == b'"' + b"7" * (sizes["blob"] - 2) + b'"'
    for name in ("small", "status"):
        assert status(server, f"json-{name}")["result"]["value"] == "7" * (sizes[name] - 2)
    assert "result" not in ended(server, "nothing")
    assert "value" not in ended(server, "number")["result"]  # no API server keeps more than 64 bits


def test_any_container_writes_and_the_pod_decides(server: up_support.UpServer) -> None:
    writes = container('echo \'"from b"\' > "$KILN_OUTPUT"', "b")
    two = task("two", container("sleep 0.1", "a"), writes)
    fails = task("one-fails", container("exit 3", "a"), writes)
    again = (
        'if mkdir "$KILN_DIR/been"; then echo 1 > $KILN_OUTPUT; exit 1; fi; echo 2 > $KILN_OUTPUT'
    )
    repeats = task("again", container(again), pod={"restartPolicy": "OnFailure"})
    first = container('echo 5 > "$KILN_DIR/five"', "first")
    after_it = container('cp "$KILN_DIR/five" "$KILN_OUTPUT"')
    init = task("init", after_it, pod={"initContainers": [first]})
    apply(server, two, fails, repeats, init)
    assert ended(server, "two")["result"]["value"] == "from b"
    failed = ended(server, "one-fails")
    assert (state(failed), failed.get("result")) == (("Failed", "NonZeroExit"), None)
    assert ended(server, "again")["result"]["value"] == 2
    assert ended(server, "init")["result"]["value"] == 5


def test_template_can_disable_the_sidecar(server: up_support.UpServer) -> None:
    off = {"annotations": {"kilnwork.dev/sidecar": "false"}}
    apply(server, task("plain", container('echo "<$KILN_SOCKET$KILN_OUTPUT>"'), metadata=off))
    after = ended(server, "plain")
    assert (state(after), after.get("result")) == (("Success", "Succeeded"), None)
    assert server.kiln("logs", "plain").stdout == "<>\n"


def test_killed_sidecar_restarts_and_knows_its_children(
    server: up_support.UpServer,
) -> None:
    before, go = server.workdir / "before", server.workdir / "go"
    child = '{"spec": {"command": ["true"]}}'
    script = f"""
        set -e
        call POST /tasks '{child}' > first
        touch {before}
        until [ -e {go} ]; do sleep 0.05; done
        until call POST /tasks '{child}' > second; do sleep 0.1; done
        cmp first second && exit 1
        echo true > $KILN_OUTPUT
    """
    apply(server, task("comes-back", container(script)))
    running(server, "comes-back", before)
    first = sidecar_of(server, "comes-back")
    os.kill(first, signal.SIGKILL)
    waiting.wait_until(lambda: sidecar_of(server, "comes-back") != first, what="another sidecar")
    go.touch()
    after = ended(server, "comes-back")
    assert (state(after), after["result"]["value"]) == (("Success", "Succeeded"), True)
    assert after["children"]["total"] == 2


def test_result_that_is_lost_with_its_sidecar_is_a_loss(server: up_support.UpServer) -> None:
    before, go = server.workdir / "lost-before", server.workdir / "lost-go"
    script = f"""
        echo $KILN_ATTEMPT > $KILN_OUTPUT; touch {before}
        until [ -e {go} ]; do sleep 0.05; done
    """
    apply(server, task("lost", container(script), pod={"terminationGracePeriodSeconds": 1}))
    running(server, "lost", before)
    os.kill(sidecar_of(server, "lost"), signal.SIGSTOP)
    go.touch()
    after = ended(server, "lost")
    assert (state(after), after["losses"]) == (("Success", "Succeeded"), 1), after
    assert after["result"]["value"] == 2


@pytest.fixture
def own(tmp_path: Path) -> Iterator[up_support.UpServer]:
    """Yield a server that the test may kill."""
    with up_support.serving(tmp_path, slots=1) as made:
        (tmp_path / "call.py").write_text(CALL)
        yield made


def test_pod_ends_while_the_server_is_away(own: up_support.UpServer, tmp_path: Path) -> None:
    """Sockets wait for the dispatcher, and the result waits in the status of the Pod."""
    before, go, over = (tmp_path / name for name in ("before", "go", "over"))
    script = f"""
        set -e
        call POST /tasks '{CHILD}' > first; touch {before}
        until [ -e {go} ]; do sleep 0.05; done
        (call POST /tasks '{CHILD}' > second; touch asked) &
        touch {over}
        until [ -e asked ]; do sleep 0.05; done
        echo '"kept"' > $KILN_OUTPUT
    """
    small = f"touch small; until [ -e {go} ]; do sleep 0.05; done; echo 1 > $KILN_OUTPUT"
    apply(own, task("away", container(script)), task("small", container(small)))
    running(own, "away", before)
    running(own, "small", tmp_path / "small")
    own.kill()
    go.touch()
    waiting.wait_until(over.exists, what="it goes on without a server")
    own.start()
    for name, value in (("away", "kept"), ("small", 1)):
        after = ended(own, name)
        assert (state(after), after["attempts"]) == (("Success", "Succeeded"), 1), after
        assert (after["result"]["value"], after.get("losses", 0)) == (value, 0)
    assert status(own, "away")["children"]["total"] == 2
