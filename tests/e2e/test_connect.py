"""`kiln.connect()` to a `kiln up`: ways to find it, errors, and calls as the commands show them."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.kit import data_directories, errors
from support import up_server as up_support
from support import waiting


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=2) as made:
        yield made


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the environment name no server."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@kiln.task
def double(number: int) -> int:
    print("doubling", number)
    return 2 * number


@kiln.task
def fail(gate: str) -> str:
    if not Path(gate).exists():
        raise LookupError(f"no {gate}")
    return "found"


@kiln.task
def spawn(number: int) -> list[int]:
    return [future.result() for future in [double.submit(n) for n in range(number)]]


@kiln.task
def sleep(note: str) -> None:
    Path(note).touch()
    time.sleep(60)


def endpoints(server: up_support.UpServer) -> dict[str, str]:
    found: dict[str, str] = json.loads((server.data / "endpoints.json").read_text())
    return found


def test_connect_by_environment(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.data / "kubeconfig"))
    with kiln.connect() as session:
        assert (session.namespace, session.cluster) == ("default", "default")
        assert double.submit(1).result(30) == 2


def test_connect_by_the_default_directory(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kilnwork").symlink_to(server.data)
    assert data_directories.data_dir() == tmp_path / "kilnwork"
    with kiln.connect():
        assert double.submit(1).result(30) == 2


def test_connect_by_directory_kubeconfig_and_url(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = endpoints(server)
    monkeypatch.setenv("KUBECONFIG", str(server.data / "kubeconfig"))
    for where in (
        server.data,
        str(server.data / "kubeconfig"),
        known["kubernetes"],
        known["http"],
        known["kubernetes"].replace("127.0.0.1", "localhost") + "/",
    ):
        with kiln.connect(where):
            assert double.submit(1).result(30) == 2


def test_result_is_found_again_by_id(server: up_support.UpServer) -> None:
    with kiln.connect(server.data):
        future = double.submit(21)
        assert future.result(30) == 42
    with kiln.connect(server.data):
        assert kiln.future(future.id).result(30) == 42


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluster": "big"}, 'no TaskCluster "big"; those that exist: default'),
        ({"namespace": "kube-public"}, 'no TaskCluster "default"; it has none'),
        (
            {"namespace": "nope"},
            '"nope" does not exist or is not served; those that you may use: default, kube',
        ),
        ({"namespace": "../x"}, "does not exist"),
    ],
)
def test_missing_namespace_or_cluster_error_lists_the_existing(
    server: up_support.UpServer, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(errors.ConfigurationError, match=words):
        kiln.connect(server.data, **options)


def test_connect_without_a_server_fails() -> None:
    with pytest.raises(errors.ConfigurationError, match=r"`kiln up`, or do without: kiln\.start"):
        kiln.connect()
    with pytest.raises(errors.ConfigurationError, match="there is no /no/such"):
        kiln.connect("/no/such")
    with pytest.raises(errors.ConfigurationError, match="no token is known for it"):
        kiln.connect("https://kiln.example:7443")


def test_url_of_another_server_is_refused(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.data / "kubeconfig"))
    with pytest.raises(errors.ConfigurationError, match="is not the server of KUBECONFIG"):
        kiln.connect("https://kiln.example:7443")


def test_unreachable_server_is_named(server: up_support.UpServer, tmp_path: Path) -> None:
    known = endpoints(server)
    stopped = {**known, "http": "http://127.0.0.1:1", "kubernetes": "https://127.0.0.1:2"}
    (tmp_path / "endpoints.json").write_text(json.dumps(stopped))
    with pytest.raises(errors.ConfigurationError, match=r"you may not read .*token"):
        kiln.connect(tmp_path)
    (tmp_path / "token").write_text("x")
    with pytest.raises(
        errors.ConfigurationError, match=r"127.0.0.1:1 does not respond \(.*running, and"
    ):
        kiln.connect(tmp_path)


ROLE = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: driver}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: drivers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: driver, namespace: default}]
"""


def test_driver_needs_the_rights_to_create_tasks(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    server.kiln("apply", "-f", "-", stdin=ROLE)
    whole = (server.data / "kubeconfig").read_text()
    token = (server.data / "token").read_text().strip()
    made = {}
    for name in ("driver", "stranger"):
        made[name] = tmp_path / f"{name}.kubeconfig"
        minted = server.kiln("token", name).stdout.strip()
        made[name].write_text(whole.replace(token, minted))
    with kiln.connect(made["driver"]):
        assert double.submit(4).result(30) == 8
    with pytest.raises(errors.ConfigurationError, match="cannot create resource"):
        kiln.connect(made["stranger"])
    made["stranger"].write_text(whole.replace(token, "wrong"))
    with pytest.raises(errors.ConfigurationError, match="does not accept the token"):
        kiln.connect(made["stranger"])


def test_commands_accept_calls(server: up_support.UpServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.connect(server.data):
        good, bad = double.submit(7), fail.submit(str(gate))
        assert good.result(30) == 14
        assert isinstance(bad.exception(20), LookupError)
        family = spawn.submit(2)
        assert family.result(30) == [0, 2]
        assert server.kiln("logs", good.id).stdout == "doubling 7\n"
        failed = server.kiln("tasks", "--state", "Failed", "-o", "name").stdout.split()
        assert bad.id in failed
        why = server.kiln("why", bad.id).stdout
        assert f"LookupError: no {gate}" in why.splitlines()[0]
        assert "Traceback (most recent call last):" in why
        function = json.loads(server.kiln("why", bad.id, "-o", "json").stdout)
        assert function["error"]["type"] == "LookupError"
        children = server.kiln("tasks", "--parent", family.id, "--no-headers").stdout
        assert len(children.splitlines()) == 2
        gate.touch()
        assert "starts again as run 2" in server.kiln("retry", "--wait", bad.id).stdout
        assert kiln.future(bad.id).result(30) == "found"
        refused = server.kiln("retry", bad.id, good.id, check=False)
        assert refused.returncode == 1
        assert refused.stderr.count("`kiln retry --force` runs it again") == 2
        assert server.kiln("retry", "--force", "--wait", good.id).returncode == 0


def test_cancel_ends_a_call(server: up_support.UpServer, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with kiln.connect(server.data):
        future = sleep.options(name="sleeper").submit(str(note))
        waiting.wait_until(note.exists, what="it runs")
        assert server.kiln("delete", "task", "sleeper", check=False).returncode == 1
        assert "not over" in server.kiln("retry", future.id, check=False).stderr
        server.kiln("cancel", "--wait", future.id)
        over = server.kiln("wait", future.id, "--for=final").stdout
        assert over == f"{future.id} condition met\n"
        assert server.kiln("wait", future.id, check=False).returncode == 6
        assert server.kiln("wait", future.id, "--for=state=Success", check=False).returncode == 6
        assert server.kiln("wait", future.id, "--for=delete", check=False).returncode == 2
        assert isinstance(future.exception(20), kiln.Cancelled)
        gone = server.kiln("delete", "task", "sleeper").stdout
        assert gone == "task sleeper deleted, with its result and output\n"
        assert server.kiln("delete", "task", "sleeper", check=False).returncode == 4


def test_filters_reach_far_into_the_list(server: up_support.UpServer) -> None:
    with kiln.connect(server.data):
        wanted = double.submit(1000)
        kiln.gather(*(spawn.submit(0) for _ in range(30))).result(30)
        by_function = server.kiln("tasks", "--function", "unknown:function", check=False)
        assert "nothing found" in by_function.stderr
        function = f"{double.__module__}:double"
        found = server.kiln("tasks", "--function", function, "--all", "-o", "json").stdout
        items = json.loads(found)["items"]
        assert wanted.id in {item["id"] for item in items}
        assert {item["function"] for item in items} == {function}
        some = server.kiln("tasks", "--limit", "3", "-o", "name")
        assert len(some.stdout.split()) == 3
        assert "more (--limit 0 for all)" in some.stderr


DECLARED = """
apiVersion: kilnwork.dev/v1alpha1
kind: TaskObject
metadata: {name: base}
data: 16
---
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: parsed}
spec:
  call: {function: "builtins:int", args: ["ff"]}
  inputs: [{name: base, object: base}]
  outputObject: number
---
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: broken}
spec:
  call: {function: "builtins:int", args: ["ff"]}
---
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: nowhere}
spec:
  call: {function: "no.such.module:fn"}
"""


def test_task_object_may_be_a_call(server: up_support.UpServer) -> None:
    server.kiln("apply", "-f", "-", stdin=DECLARED)
    server.kiln("wait", "parsed", "broken", "nowhere", "--for=final", "--timeout", "50s")
    status = server.get("tasks", "parsed")["status"]
    assert (status["state"], status["result"]["value"]) == ("Success", 255)
    assert server.get("taskobjects", "number")["data"] == 255
    why = server.kiln("why", "broken").stdout
    assert "(Raised): ValueError: invalid literal" in why
    assert "Traceback" in why
    assert "No module named 'no'" in server.kiln("why", "nowhere").stdout
    done = server.kiln("retry", "--force", "--wait", "parsed").stdout
    assert done == "parsed starts again as run 2\n"
    both = server.kiln("apply", "-f", "-", stdin=BOTH, check=False)
    assert "give either call, or command with args" in both.stderr


BOTH = """
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: both}
spec: {command: ["true"], call: {function: "builtins:int"}}
"""


def test_ids_of_calls_are_completed(server: up_support.UpServer) -> None:
    with kiln.connect(server.data):
        future = double.submit(3)
        assert future.result(30) == 6
    asked = {"COMP_WORDS": f"kiln why {future.id[:-4]}", "COMP_CWORD": "2"}

    def offered() -> list[str]:
        """Return the completions; none if reading them takes more than a second: call again."""
        return subprocess.run(
            [up_support.KILN],
            capture_output=True,
            text=True,
            env={**server.environment, **asked, "_KILN_COMPLETE": "bash_complete"},
            check=False,
        ).stdout.splitlines()

    assert f"plain,{future.id}" in waiting.wait_until(offered, what="it is completed")
