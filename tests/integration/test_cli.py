"""`kiln` against a whole `kiln up`: commands of new users, and output that scripts rely on."""

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kilnwork.cli import exits, main
from kilnwork.controlplane import lock
from kilnwork.kit import processes
from support import in_process_cli, terminal, waiting

READY_S = 20.0


Kiln = in_process_cli.Kiln


def start(data: Path, *args: str) -> "subprocess.Popen[str]":
    """Start `kiln up` and wait until it is ready or has ended."""
    command = [sys.executable, "-m", "kilnwork", "up", "--data", str(data), *args]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        if "export KUBECONFIG=" in line:
            break
    return server


def end(server: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> int:
    """Stop the server and read the rest of its output."""
    if server.poll() is None:
        server.send_signal(number)
    server.communicate(timeout=40)
    return server.returncode


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("up") / "data"
    server = start(directory, "--port", "0", "--slots", "2")
    yield directory
    assert end(server) == 0


@pytest.fixture
def kiln(data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Kiln:
    return in_process_cli.kiln_of(data, monkeypatch, capfd)


def test_version_and_status(kiln: Kiln) -> None:
    facts = json.loads(kiln("version", "-o", "json").out)
    assert facts["client"]["version"]
    assert facts["server"]["url"].startswith("https://127.0.0.1:")
    status = json.loads(kiln("status", "-o", "json").out)
    assert [node["ready"] for node in status["nodes"]] == [True]
    assert [c["name"] for c in status["clusters"] if c["namespace"] == "default"] == ["default"]
    text = kiln("status")
    assert (text.code, "is ready" in text.out) == (0, True)
    assert kiln("status", "--wait", "--timeout", "5s").code == 0


def test_status_waits_for_a_server_that_starts_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert main.main(["status", "--wait", "--timeout", "300ms"]) == exits.Exit.TIMED_OUT
    assert "not ready within 0.3 s" in capfd.readouterr().err


OBJECT = """
apiVersion: kilnwork.dev/v1alpha1
kind: TaskObject
metadata: {{name: {name}, labels: {{of: apply}}}}
data: {{n: 1}}
"""
CLUSTER = """
apiVersion: kilnwork.dev/v1alpha1
kind: TaskCluster
metadata: {{name: {name}}}
spec: {{replicas: {replicas}}}
"""


def test_apply_reports_each_object(kiln: Kiln, tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    file.write_text(OBJECT.format(name="one") + "---" + CLUSTER.format(name="idle", replicas=0))
    assert kiln("apply", "-f", str(file)).out == (
        "taskobject.kilnwork.dev/one created\ntaskcluster.kilnwork.dev/idle created\n"
    )
    assert kiln("apply", "-f", str(file)).out == (
        "taskobject.kilnwork.dev/one unchanged\ntaskcluster.kilnwork.dev/idle unchanged\n"
    )
    file.write_text(CLUSTER.format(name="idle", replicas="0, slotsPerWorker: 3"))
    assert kiln("apply", "-f", str(file)).out == "taskcluster.kilnwork.dev/idle configured\n"
    live = yaml.safe_load(kiln("get", "ktc", "idle", "-o", "yaml").out)
    assert live["spec"]["slotsPerWorker"] == 3
    assert kiln("delete", "-f", str(file)).code == 0


def test_apply_applies_valid_objects_and_names_invalid_ones(kiln: Kiln, tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    head = "apiVersion: kilnwork.dev/v1alpha1\nkind: Task\nmetadata: {name: bad}\n"
    bad = f"{head}spec: {{comand: [x]}}\n"
    file.write_text(f"{bad}---{OBJECT.format(name='good')}")
    done = kiln("apply", "-f", str(file))
    assert done.code == exits.Exit.FAILED
    assert "taskobject.kilnwork.dev/good created" in done.out
    assert f"error: {file}:1:" in done.err
    assert 'unknown field "spec.comand"' in done.err


@pytest.mark.parametrize("command", ["apply", "delete"])
def test_interrupting_a_read_of_standard_input(command: str, data: Path) -> None:
    words = [sys.executable, "-m", "kilnwork", command, "-f", "-"]
    environment = {**os.environ, "KUBECONFIG": str(data / "kubeconfig")}
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as reader:
        assert reader.stdin is not None
        pipe = reader.stdin.fileno()
        os.write(pipe, b"kind: ")
        waiting.wait_until(
            lambda: _unread(pipe) == 0 and _state(reader.pid) == "S", what="it waits for more"
        )
        reader.send_signal(signal.SIGINT)
        assert reader.wait(timeout=30) == exits.Exit.INTERRUPTED


def _state(pid: int) -> str:
    """Return the process state (proc_pid_stat(5)): Python notices no signal right before it
    reads.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _unread(pipe: int) -> int:
    """Return the number of unread bytes in a pipe (FIONREAD, ioctl_pipe in pipe(7))."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def test_malformed_yaml_is_named_with_line_and_column(kiln: Kiln, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(f"{OBJECT.format(name='before')}---\na: b: c\n")
    done = kiln("apply", "-f", str(file))
    assert done.code == exits.Exit.USAGE
    assert f"{file}:7:5: malformed YAML" in done.err
    assert kiln("get", "taskobject", "before").code == exits.Exit.NOT_FOUND


def test_get_supports_every_output_format(kiln: Kiln, tmp_path: Path) -> None:
    file = tmp_path / "object.yaml"
    file.write_text(OBJECT.format(name="seen"))
    kiln("apply", "-f", str(file))
    table = kiln("get", "taskobjects").out.splitlines()
    assert table[0].split()[0] == "NAME"
    assert any(line.startswith("seen ") for line in table)
    everywhere = kiln("get", "ktobj", "-A").out.splitlines()
    assert everywhere[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert kiln("get", "TaskObject", "seen", "-o", "name").out == "taskobject.kilnwork.dev/seen\n"
    assert json.loads(kiln("get", "taskobject/seen", "-o", "json").out)["data"] == {"n": 1}
    listed = yaml.safe_load(kiln("get", "taskobjects", "-l", "of=apply", "-o", "yaml").out)
    assert "seen" in [item["metadata"]["name"] for item in listed["items"]]
    assert "taskobject.kilnwork.dev/seen" in kiln("get", "all").out
    nothing = kiln("-n", "kube-system", "get", "tasks").err
    assert nothing.startswith(
        "nothing found in namespace kube-system; `kiln tasks` lists those of "
    )
    empty = "nothing found in namespace kube-system\n"
    assert kiln("-n", "kube-system", "get", "ktobj").err == empty


def test_run_shows_output_and_exits_as_the_task(kiln: Kiln) -> None:
    good = kiln("run", "--watch", "--", "sh", "-c", "echo to-out; echo to-err >&2")
    assert (good.code, good.out) == (0, "to-out\nto-err\n")
    bad = kiln("run", "--watch", "--name", "three", "--", "sh", "-c", "exit 3")
    assert bad.code == 3
    assert "kiln why three" in bad.err
    assert "NonZeroExit" in kiln("why", "three").out


def test_run_with_input_and_environment(kiln: Kiln, tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    file.write_text('{"n": [1, 2]}')
    program = "import json, os; print(json.load(open(os.environ['KILN_INPUT'])), os.environ['X'])"
    done = kiln(
        "run", "--watch", "--input", str(file), "--env", "X=y", sys.executable, "-c", program
    )
    assert done.out == "{'input': {'n': [1, 2]}} y\n"


def test_dry_run_creates_no_object(kiln: Kiln) -> None:
    done = kiln("run", "--dry-run", "--name", "dry", "--retries", "2", "--timeout", "1m", "--", "x")
    assert yaml.safe_load(done.out)["spec"] == {
        "command": ["x"],
        "retry": {"maxAttempts": 3},
        "timeouts": {"runningSeconds": 60.0},
    }
    assert kiln("get", "task", "dry").code == exits.Exit.NOT_FOUND


def test_logs_outlive_the_task_object(kiln: Kiln) -> None:
    kiln("run", "--watch", "--name", "talker", "--", "sh", "-c", "for i in 1 2 3; do echo $i; done")
    uid = json.loads(kiln("get", "task", "talker", "-o", "json").out)["metadata"]["uid"]
    assert kiln("logs", "talker", "--tail", "2").out == "2\n3\n"
    assert kiln("delete", "task", "talker").code == 0
    assert kiln("logs", uid).out == "1\n2\n3\n"
    assert kiln("logs", "missing").code == exits.Exit.NOT_FOUND


def test_wait_and_cancel(kiln: Kiln) -> None:
    kiln("run", "--name", "sleeper", "--", "sleep", "600")
    assert kiln("wait", "sleeper", "--for=state=Running", "--timeout", "20s").code == 0
    late = kiln("wait", "sleeper", "--for=Success", "--timeout", "200ms")
    assert (late.code, "not within 0.2 s" in late.err) == (exits.Exit.TIMED_OUT, True)
    assert kiln("why", "sleeper").out.startswith("Task sleeper runs for")
    assert kiln("cancel", "sleeper", "--wait").code == 0
    assert "already Killed" in kiln("cancel", "sleeper").out
    killed = kiln("wait", "sleeper", "--for=state=Success")
    assert killed.code == exits.Exit.TASK_FAILED
    assert kiln("wait", "missing").code == exits.Exit.NOT_FOUND
    assert kiln("wait", "sleeper", "--for=final", "--timeout", "0").code == 0
    by_default = kiln("wait", "sleeper", "--timeout", "0")
    assert by_default.code == exits.Exit.TASK_FAILED
    assert "task/sleeper ended as Killed" in by_default.err.replace(".kilnwork.dev", "")
    assert kiln("wait", "sleeper", "--for=delete", "--timeout", "0").code == exits.Exit.TIMED_OUT
    assert "choose another --name" in kiln("run", "--name", "sleeper", "--", "true").err


def test_waiting_task_shows_its_reason(kiln: Kiln) -> None:
    kiln("run", "--name", "early", "--input", "not-there-yet", "--", "true")
    assert kiln("wait", "early", "--for=state=Pending", "--timeout", "10s").code == 0
    assert "not-there-yet" in kiln("why", "early").out
    assert kiln("delete", "task", "early").code == 0


def test_delete_by_selector_waits_until_gone(kiln: Kiln, tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(OBJECT.format(name="d1") + "---" + OBJECT.format(name="d2"))
    kiln("apply", "-f", str(file))
    assert kiln("delete", "ktobj").code == exits.Exit.USAGE
    assert kiln("delete", "ktobj", "d1", "--all").code == exits.Exit.USAGE
    assert kiln("delete", "-f", str(file), "-l", "of=apply").code == exits.Exit.USAGE
    assert kiln("delete", "ktobj", "--all", "-l", "of=apply").code == exits.Exit.USAGE
    file.write_text("")
    assert "no objects in there" in kiln("delete", "-f", str(file)).err
    assert "no taskobjects found" in kiln("delete", "ktobj", "-l", "of=nothing").err
    done = kiln("delete", "ktobj", "-l", "of=apply")
    assert "taskobject.kilnwork.dev/d1 deleted" in done.out
    assert kiln("get", "ktobj", "d1").code == exits.Exit.NOT_FOUND
    assert kiln("delete", "ktobj", "d1").code == exits.Exit.NOT_FOUND
    assert kiln("delete", "ktobj", "d1", "--ignore-not-found").code == 0


DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cogs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Cog, plural: cogs}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""
COGS = "".join(
    f"---\napiVersion: example.com/v1\nkind: Cog\nmetadata: {{name: c{number}}}\n"
    for number in range(3)
)


def test_delete_waits_for_objects_whose_definition_goes(kiln: Kiln, tmp_path: Path) -> None:
    file = tmp_path / "cogs.yaml"
    for text in (DEFINITION, COGS):
        file.write_text(text)
        assert kiln("apply", "-f", str(file)).code == 0
    file.write_text(DEFINITION + COGS)
    done = kiln("delete", "-f", str(file))
    assert (done.code, "error" in done.err) == (0, False), done.err
    assert kiln("get", "crd", "cogs.example.com").code == exits.Exit.NOT_FOUND
    assert "serves no kind Cog" in kiln("delete", "-f", str(file)).err
    assert kiln("delete", "-f", str(file), "--ignore-not-found").code == 0


@pytest.mark.parametrize(
    ("namespace", "said"),
    [
        ("nosuchns", "there is no namespace nosuchns: no tasks come before it exists\n"),
        ("default", "executor mine is ready, 1 slots\n"),
    ],
)
def test_executor_in_a_missing_namespace_is_an_error(data: Path, namespace: str, said: str) -> None:
    code = (
        "from kilnwork import executor\nasync def call(task): ...\n"
        f"executor.run('mine', call, namespace='{namespace}', kubeconfig='{data}/kubeconfig')"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == said
    finally:
        program.kill()
        program.communicate()


def test_names_are_completed(kiln: Kiln, data: Path) -> None:
    kiln("run", "--name", "tabbed", "--", "true")
    for line in ("logs tabb", "get tasks tabb", "why task/tabb", "-n default cancel tabb"):
        asked = {"COMP_WORDS": f"kiln {line}", "COMP_CWORD": str(len(line.split()))}
        environment = {**os.environ, "KUBECONFIG": str(data / "kubeconfig"), **asked}
        environment["_KILN_COMPLETE"] = "bash_complete"

        def offered(given: dict[str, str] = environment) -> tuple[str, str]:
            """After a second it would rather offer nothing: one may press Tab again."""
            command = [sys.executable, "-m", "kilnwork"]
            done = subprocess.run(command, capture_output=True, text=True, env=given, check=False)
            return done.stdout, done.stderr

        expected = line.split()[-1].replace("tabb", "tabbed")
        found = waiting.wait_until(lambda: any(now := offered()) and now, what=line)
        assert found == (f"plain,{expected}\n", "")


def test_token_commands_create_and_list_tokens(kiln: Kiln, data: Path) -> None:
    assert kiln("token").out.strip() == (data / "token").read_text().strip()
    minted = kiln("token", "default")
    assert (minted.code, minted.out.count(".")) == (0, 2)
    assert kiln("token", "--duration", "1h").code == exits.Exit.USAGE
    assert kiln("token", "missing").code == exits.Exit.NOT_FOUND


def test_unknown_kind_is_named(kiln: Kiln) -> None:
    done = kiln("get", "tusks")
    assert (done.code, "knows no kind 'tusks'" in done.err) == (exits.Exit.USAGE, True)


@pytest.mark.parametrize("verb", ["cancel", "retry", "suspend", "logs"])
def test_unknown_kind_before_the_name_of_a_task_is_named(kiln: Kiln, verb: str) -> None:
    done = kiln(verb, "foo/x")
    assert done.code == exits.Exit.NOT_FOUND
    assert "'foo' is not a kind" in done.err
    assert "task/x, job/x, syncset/x, file/x" in done.err


def test_get_watch_shows_new_objects(kiln: Kiln, data: Path) -> None:
    command = [sys.executable, "-m", "kilnwork", "get", "tasks", "--watch", "-o", "name"]
    environment = {**os.environ, "KUBECONFIG": str(data / "kubeconfig")}
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert watcher.stdout is not None
    kiln("run", "--name", "watched", "--", "true")
    seen = next(line for line in watcher.stdout if "watched" in line)
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=30)
    assert seen == "task.kilnwork.dev/watched\n"
    assert watcher.returncode == exits.Exit.INTERRUPTED


SPAWNER = """
import http.client, json, os, socket

class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["KILN_SOCKET"])

connection = Connection("task")
body = {"name": "born", "spec": {"command": ["echo", "from the child"]}}
connection.request("POST", "/tasks", json.dumps(body), {"Content-Type": "application/json"})
child = json.load(connection.getresponse())["id"]
connection.request("GET", f"/tasks/{child}?wait=20")
print(child, json.load(connection.getresponse())["state"])
"""


TASK = """
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: needs-numbers}
spec: {command: ["true"], inputObject: numbers-that-are-not-there}
"""


def test_spawned_tasks_are_shown_by_the_same_commands(kiln: Kiln) -> None:
    done = kiln("run", "--watch", "--", sys.executable, "-c", SPAWNER)
    child, state = done.out.split()
    assert state == "Success"
    short = child[-8:]
    table = kiln("get", "tasks", "--spawned").out.splitlines()
    assert table[0].split() == ["ID", "NAME", "STATE", "ATTEMPTS", "AGE", "TOOK", "PARENT"]
    *row, parent = table[1].split()
    assert row[:4] == [short, "born", "Success", "1"]
    assert parent.startswith("run-")
    for ref in (child, short, child[:13]):  # 13: the millisecond in which it was spawned
        assert kiln("logs", ref).out == "from the child\n"
        assert kiln("why", ref).out.startswith("Task born succeeded")
        assert "already Success" in kiln("cancel", ref).out
        assert kiln("wait", ref).code == 0
    assert kiln("result", short).err == f"task {short} has no result\n"
    uid = json.loads(kiln("get", "task", parent, "-o", "json").out)["metadata"]["uid"]
    of_parent = kiln("tasks", "--parent", uid[-8:], "-o", "name").out
    assert of_parent == f"{child}\n"
    everywhere = kiln("tasks", "-A", "--parent", uid[-8:])
    assert (everywhere.code, "list one namespace" in everywhere.err) == (1, True)


def test_task_object_is_found_by_the_end_of_its_uid(kiln: Kiln) -> None:
    kiln("run", "--name", "short-lived", "--watch", "--", "true")
    listed = json.loads(kiln("tasks", "--limit", "1", "-o", "json").out)["items"]
    short = listed[0]["id"][-8:]
    assert "short-lived" in kiln("tasks", "-A").out
    assert kiln("retry", "--force", "--wait", short).out == "short-lived starts again as run 2\n"
    assert "has succeeded" in kiln("retry", short).err
    assert "short-lived deleted" in kiln("delete", "task", short).out
    assert kiln("delete", "task", short).code == 4


def test_list_states_how_many_rows_it_leaves_out(kiln: Kiln) -> None:
    for number in range(2):
        kiln("run", "--watch", "--name", f"one-of-many-{number}", "--", "true")
    cut = kiln("tasks", "--limit", "1")
    assert len(cut.out.splitlines()) == 2
    whole = kiln("tasks", "--limit", "0")
    assert whole.err == ""
    total = len(whole.out.splitlines()) - 1
    assert total > 1
    assert cut.err == f"… and {total - 1} more (--limit 0 for all)\n"
    everywhere = kiln("tasks", "-A", "--limit", "1")
    assert everywhere.err == cut.err
    declared = json.loads(kiln("tasks", "-o", "json").out)["items"]
    spawned = [item for item in declared if not item["declared"]]
    assert len(spawned) < 2 or (
        kiln("get", "tasks", "--spawned", "--limit", "1").err
        == f"… and {len(spawned) - 1} more (--limit 0 for all)\n"
    )
    done = [item for item in declared if item["state"] == "Success"]
    some = kiln("tasks", "--state", "Success", "--limit", "1")
    assert some.err == f"… and {len(done) - 1} more (--limit 0 for all)\n"


@pytest.mark.parametrize("name", ["why", "logs", "run", "result", "cancel", "wait"])
def test_task_reference_and_namespace_option_must_agree(kiln: Kiln, name: str) -> None:
    refused = kiln(name, "-A", "x")
    assert (refused.code, "say -n NAMESPACE" in refused.err) == (2, True)
    assert "--all-namespaces" not in kiln(name, "--help").out


def test_unreachable_server_is_named(
    kiln: Kiln, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path
) -> None:
    text = (data / "kubeconfig").read_text()
    url = json.loads((data / "endpoints.json").read_text())["kubernetes"]
    file = tmp_path / "kubeconfig"
    file.write_text(text.replace(url, "https://127.0.0.1:1"))
    done = kiln("get", "tasks", "--kubeconfig", str(file))
    assert done.code == exits.Exit.UNREACHABLE
    assert "https://127.0.0.1:1 does not respond (" in done.err
    assert "is the server running, and is this the right kubeconfig or address?" in done.err
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = kiln("get", "tasks")
    assert (done.code, "kiln up" in done.err) == (exits.Exit.UNREACHABLE, True)


def test_second_server_on_the_directory_is_refused_by_name(kiln: Kiln, data: Path) -> None:
    second = start(data, "--port", "0")
    _, err = second.communicate(timeout=READY_S)
    pid = json.loads((data / "endpoints.json").read_text())["pid"]
    assert second.returncode == exits.Exit.FAILED
    assert str(data) in err
    assert str(pid) in err
    assert kiln("status").code == 0


def test_port_in_use_is_refused_by_number(data: Path, tmp_path: Path) -> None:
    url = json.loads((data / "endpoints.json").read_text())["kubernetes"]
    port = url.rpartition(":")[2]
    second = start(tmp_path / "other", "--port", port)
    _, err = second.communicate(timeout=READY_S)
    assert second.returncode == exits.Exit.FAILED
    assert port in err
    assert "--port" in err


def test_down_stops_everything_and_is_idempotent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    server = start(directory, "--port", "0", "--slots", "1")
    monkeypatch.setenv("KUBECONFIG", str(directory / "kubeconfig"))
    assert main.main(["run", "--name", "long", "--", "sleep", "600"]) == 0
    assert main.main(["wait", "long", "--for=state=Running", "--timeout", "20s"]) == 0
    family = processes.descendants(server.pid)
    assert family
    begun = time.monotonic()
    assert main.main(["down", "--data", str(directory)]) == 0
    assert time.monotonic() - begun < 25  # it sleeps for 600
    assert end(server) == 0
    assert not [pid for pid in family if _runs(pid)]
    assert main.main(["down", "--data", str(directory)]) == 0
    assert "no server runs" in capfd.readouterr().out


def _runs(pid: int) -> bool:
    found = processes.identify(pid)
    return found is not None and found.alive()


def test_interrupted_start_leaves_no_process(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    command = [sys.executable, "-m", "kilnwork", "up", "--data", str(directory), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + READY_S
    while not (directory / "control.lock").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(server.pid, signal.SIGINT)
    server.communicate(timeout=40)
    assert server.returncode == 0
    assert lock.holder(directory) is None


@pytest.mark.curl
def test_progress_of_a_running_task_is_in_lists_and_in_why(kiln: Kiln) -> None:
    report = (
        'curl -sS --unix-socket "$KILN_SOCKET" http://task/progress '
        """--json '{"fraction": 0.4, "message": "reading page 3"}'; sleep 60"""
    )
    assert kiln("run", "--name", "reader", "--", "sh", "-c", report).code == 0

    def listed() -> object:
        items = json.loads(kiln("tasks", "-o", "json").out)["items"]
        found = (item.get("progress") for item in items if item["name"] == "reader")
        return next(found, None)  # none while the manager has not seen the Task

    try:
        expected = {"fraction": 0.4, "message": "reading page 3"}
        waiting.wait_until(lambda: listed() == expected, what="the list has the progress")
        waiting.wait_until(
            lambda: kiln("why", "reader").out.endswith("attempt 1: 40 %, reading page 3.\n"),
            what="why has the progress, once the object says that it runs",
        )
    finally:
        assert kiln("cancel", "reader", "--wait").code == 0


@pytest.mark.parametrize(
    "line",
    [
        "get tasks",
        "get tasks -o json",
        "get all",
        "get task x",
        "get tasks --spawned",
        "tasks",
        "tasks -o name",
        "tasks --state Running -o json",
        "files",
        "jobs",
        "jobs -o json",
        "schedule",
        "data",
        "files --uploads",
        "why x",
        "logs x",
        "result x",
        "wait x",
        "cancel x",
        "retry x",
        "run -- true",
        "delete task x",
        "delete tasks --all",
    ],
)
def test_namespace_that_does_not_exist_is_an_error(kiln: Kiln, line: str) -> None:
    name, *rest = line.split()
    done = kiln(name, "-n", "nowhere", *rest)
    assert (done.code, done.out) == (exits.Exit.NOT_FOUND, "")
    assert 'namespace "nowhere" does not exist' in done.err


def test_applying_to_a_namespace_that_does_not_exist(kiln: Kiln, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(
        TASK.replace("metadata: {", "metadata: {namespace: nowhere, ")
    )
    done = kiln("apply", "-f", str(tmp_path / "task.yaml"))
    assert (done.code, 'namespaces "nowhere" not found' in done.err) == (exits.Exit.FAILED, True)


def test_why_right_after_apply_names_what_is_missing(kiln: Kiln, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(TASK)
    kiln("apply", "-f", str(tmp_path / "task.yaml"))
    reported = kiln("why", "needs-numbers").out
    assert "TaskObject numbers-that-are-not-there does not exist" in reported
    kiln("delete", "task", "needs-numbers")


def test_managed_fields_are_shown_on_request(kiln: Kiln, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(TASK)
    applied = kiln("apply", "-f", str(tmp_path / "task.yaml"), "-o", "yaml").out
    shown = [
        kiln("get", "task", "needs-numbers", "-o", "yaml").out,
        kiln("get", "tasks", "-o", "json").out,
        applied,
    ]
    assert all("managedFields" not in text and "needs-numbers" in text for text in shown)
    for words in (["task", "needs-numbers", "-o", "yaml"], ["tasks", "-o", "json"]):
        assert "managedFields" in kiln("get", *words, "--show-managed-fields").out
    kiln("delete", "task", "needs-numbers")


def test_name_without_a_kind_is_not_deleted(kiln: Kiln) -> None:
    kiln("run", "--name", "hello", "--watch", "--", "true")
    refused = kiln("delete", "hello")
    assert (refused.code, "write `kiln delete task hello`" in refused.err) == (4, True)
    unknown = kiln("delete", "nothing-of-this-name")
    assert "the server knows no kind" in unknown.err
    assert kiln("delete", "task", "hello").code == 0


def test_last_output_is_printed_before_the_end(kiln: Kiln, data: Path) -> None:
    """On a terminal both streams are mixed: the output of a task is printed above its end."""
    environment = {**os.environ, "KUBECONFIG": str(data / "kubeconfig")}
    command = [sys.executable, "-m", "kilnwork", "run", "--watch", "--", "seq", "200000"]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    lines = done.stdout.decode().splitlines()
    assert lines[-1].endswith(": Success (Succeeded)") or lines[-1].endswith(": Success")
    assert lines[-2] == "200000"


FAMILY = (
    SPAWNER.partition("body =")[0]
    + """
import sys
def ask(method, path, body=None):
    headers = {"Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    return json.load(connection.getresponse())
children = []
for number in range(3):
    wait = f"until [ -e {sys.argv[1]} ]; do sleep 0.05; done"
    command = ["sh", "-c", "exit 3" if number == 0 else wait]
    body = {"name": f"part-{number}", "spec": {"command": command}}
    children.append(ask("POST", "/tasks", body)["id"])
for child in children:
    while ask("GET", f"/tasks/{child}?wait=20")["state"] not in ("Success", "Failed"):
        pass
"""
)


def test_waiting_in_a_terminal_shows_children_and_what_failed(
    kiln: Kiln, data: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    kiln("run", "--name", "family", "--", sys.executable, "-c", FAMILY, str(gate))
    environment = {**os.environ, "KUBECONFIG": str(data / "kubeconfig")}
    shown = terminal.Terminal([sys.executable, "-m", "kilnwork", "wait", "family"], environment)
    shown.until(r"part-0 \([0-9a-f]{8}\) failed: ")
    shown.until(r"of 3 tasks")
    gate.touch()
    assert shown.end() == 0, shown.shown
    assert "family condition met" in shown.shown
