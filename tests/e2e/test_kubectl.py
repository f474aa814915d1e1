"""Plain kubectl against `kiln up`, for users who do not know the `kiln` command."""

import json
import shutil
from collections.abc import Iterator

import pytest

from support import up_server as up_support
from support import waiting

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(
        shutil.which("kubectl") is None,
        reason="kubectl is not on PATH: install it (your distribution's package, or kubernetes.io)",
    ),
]

TASK = """
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: THIS}
spec:
  command: [sh, -c, "echo hello from $TASK_NAME"]
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    """Yield a server for all tests of the module: each test uses its own names."""
    with up_support.serving(tmp_path_factory.mktemp("up")) as server:
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("_", "-")[:40].strip("-")


@pytest.fixture
def task(name: str) -> str:
    return TASK.replace("THIS", name)


def test_apply_get_and_delete(up: up_support.UpServer, task: str, name: str) -> None:
    assert "created" in up.kubectl("apply", "-f", "-", stdin=task).stdout
    assert "unchanged" in up.kubectl("apply", "-f", "-", stdin=task).stdout
    up.kubectl("wait", f"task/{name}", "--for=jsonpath={.status.state}=Success", "--timeout=20s")
    table = up.kubectl("get", "ktask").stdout.splitlines()
    assert table[0].split()[:2] == ["NAME", "STATE"]
    assert [name, "Success"] in [row.split()[:2] for row in table[1:]]
    assert name in up.kubectl("get", "kiln", "-A").stdout
    up.kubectl("delete", "task", name)
    assert "NotFound" in up.kubectl("get", "task", name, check=False).stderr


def test_changing_a_task_by_apply_and_by_merge_patch(
    up: up_support.UpServer, task: str, name: str
) -> None:
    up.kubectl("apply", "-f", "-", stdin=task)
    changed = task.replace("spec:", "spec:\n  ttlSecondsAfterFinished: 600")
    assert "configured" in up.kubectl("apply", "-f", "-", stdin=changed).stdout
    patch = json.dumps({"metadata": {"labels": {"colour": "red"}}})
    up.kubectl("patch", "task", name, "--type=merge", "-p", patch)
    found = up.kubectl("get", "tasks", "-l", "colour=red", "-o", "name").stdout.strip()
    assert found == f"task.kilnwork.dev/{name}"


def test_logs_of_a_worker_pod_show_what_its_tasks_print(
    up: up_support.UpServer, task: str, name: str
) -> None:
    up.kubectl("apply", "-f", "-", stdin=task)
    up.kubectl("wait", f"task/{name}", "--for=jsonpath={.status.state}=Success", "--timeout=20s")
    pod = up.kubectl("get", "task", name, "-o", "jsonpath={.status.podName}").stdout
    waiting.wait_until(
        lambda: f"hello from {name}" in up.kubectl("logs", pod).stdout, what="the line"
    )


def test_pod_runs_as_a_process_and_is_deleted(up: up_support.UpServer) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "command": ["sh", "-c", "echo hi; exit 3"]}],
        },
    }
    up.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    up.kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Failed", "--timeout=20s")
    path = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    assert up.kubectl("get", "pod", "p", "-o", path).stdout == "3"
    assert up.kubectl("logs", "p").stdout == "hi\n"
    up.kubectl("delete", "pod", "p")
    assert "NotFound" in up.kubectl("get", "pod", "p", check=False).stderr


def test_service_account_may_do_only_what_its_role_says(
    up: up_support.UpServer, task: str, name: str
) -> None:
    up.kubectl("create", "serviceaccount", "reader")
    up.kubectl("create", "role", "reader", "--verb=get", "--resource=tasks.kilnwork.dev")
    up.kubectl(
        "create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader"
    )
    token = up.kubectl("create", "token", "reader").stdout.strip()
    up.kubectl("apply", "-f", "-", stdin=task)
    server = json.loads((up.data / "endpoints.json").read_text())["kubernetes"]
    ca = str(up.data / "pki" / "ca.crt")
    as_reader = [
        "--kubeconfig=/dev/null",
        f"--server={server}",
        f"--certificate-authority={ca}",
        f"--token={token}",
    ]
    assert name in up.kubectl(*as_reader, "get", "task", name, "-o", "name").stdout
    done = up.kubectl(*as_reader, "delete", "task", name, check=False)
    assert 'User "system:serviceaccount:default:reader" cannot delete resource "tasks"' in (
        done.stderr
    )


def test_kubectl_finds_unchanged_what_kiln_applied(up: up_support.UpServer, task: str) -> None:
    up.kiln("apply", "-f", "-", stdin=task)
    assert "unchanged" in up.kubectl("apply", "-f", "-", stdin=task).stdout
    assert "unchanged" in up.kiln("apply", "-f", "-", stdin=task).stdout
