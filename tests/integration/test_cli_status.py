"""`kiln status`: file jobs beside tasks, users with few rights, and missing servers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import filejobs
from kilnwork.cli import exits
from support import in_process_cli
from support import up_server as up_support

RIGHTS = """
{apiVersion: v1, kind: Namespace, metadata: {name: other}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: files}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: nothing}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: viewer}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: viewer, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: files}
rules: [{apiGroups: [kilnwork.dev], resources: [jobs], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: files}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: files}
subjects: [{kind: ServiceAccount, name: files, namespace: default}]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    directory = tmp_path_factory.mktemp("up")
    (directory / "rights.yaml").write_text(RIGHTS)
    (directory / "in.jsonl").write_text("1\n2\n3\n")
    with up_support.serving(directory, slots=1) as made:
        made.kiln("apply", "-f", "rights.yaml")
        yield made


@pytest.fixture
def kiln(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> in_process_cli.Kiln:
    monkeypatch.chdir(server.workdir)
    return in_process_cli.kiln_of(server.data, monkeypatch, capfd)


@pytest.fixture
def as_account(
    server: up_support.UpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Use the kubeconfig of this ServiceAccount from now on."""

    def become(account: str) -> None:
        token = server.kiln("token", account).stdout.strip()
        config = (server.data / "kubeconfig").read_text()
        own = (server.data / "token").read_text().strip()
        assert own in config
        (tmp_path / "config").write_text(config.replace(own, token))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    return become


def test_file_jobs_are_counted_and_the_newest_shown(kiln: in_process_cli.Kiln) -> None:
    assert "files:  none\n" in kiln("status").out
    over = kiln("upload", "in.jsonl", "--mapper", "identity", "--name", "over", "--watch").out
    held = kiln("upload", "in.jsonl", "--mapper", "identity", "--name", "held", "--paused").out
    other = kiln("upload", "in.jsonl", "--mapper", "identity", "-n", "other", "--paused")
    assert other.code == exits.Exit.FAILED  # it has no TaskCluster
    text = kiln("status").out
    assert "files:  1 Paused, 1 Succeeded\n" in text
    shown = [line.split()[:3] for line in text.splitlines() if line.startswith("f-")]
    first, second = (filejobs.short_id(job.strip()) for job in (held, over))
    assert shown == [[first, "held", "Paused"], [second, "over", "Succeeded"]]
    facts = json.loads(kiln("status", "-o", "json").out)
    assert facts["files"]["phases"] == {"Paused": 1, "Succeeded": 1}
    assert [job["id"] for job in facts["files"]["newest"]] == [held.strip(), over.strip()]
    assert "files:  none\n" in kiln("status", "-n", "other").out
    kiln("delete", "files", "--all")


def test_tasks_are_counted_by_function_and_state(
    server: up_support.UpServer, kiln: in_process_cli.Kiln
) -> None:
    call = {"function": "math:sqrt", "args": [4]}
    waits = {"command": ["true"], "inputObject": "missing"}
    specs: dict[str, dict[str, Any]] = {"root": {"call": call}, "far": waits}
    for name, spec in specs.items():
        manifest = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"clusterName": "default", **spec},
        }
        (server.workdir / f"{name}.json").write_text(json.dumps(manifest))
    kiln("apply", "-f", "root.json", "-f", "far.json")
    assert kiln("wait", "task/root").code == 0
    assert kiln("wait", "task/far", "--for=state=Pending").code == 0
    text = kiln("status").out
    assert ["default", "math:sqrt", "1"] in [line.split() for line in text.splitlines()]
    facts = json.loads(kiln("status", "-o", "json").out)
    assert facts["tasks"]["Pending"] == 1
    square_roots = {"namespace": "default", "function": "math:sqrt", "states": {"Success": 1}}
    assert square_roots in facts["functions"]
    kiln("delete", "task", "root", "far")


def test_status_names_missing_rights_and_shows_the_rest(
    kiln: in_process_cli.Kiln, as_account: Callable[[str], None]
) -> None:
    kiln("upload", "in.jsonl", "--mapper", "identity", "--name", "seen", "--paused")
    as_account("files")
    done = kiln("status")
    assert done.code == 0
    assert "is ready\n" in done.out
    assert "files:  1 Paused (in namespace default)\n" in done.out
    for kind in ("nodes", "tasks", "clusters"):
        assert f"{kind}: not shown: " in done.out
    assert 'cannot list resource "tasks"' in done.out
    assert "no TaskCluster" not in done.out
    facts = json.loads(kiln("status", "-o", "json").out)
    assert set(facts["missing"]) == {"nodes", "tasks", "clusters"}
    as_account("nothing")
    done = kiln("status")
    assert (done.code, "files: not shown: " in done.out) == (0, True)


def test_status_is_limited_to_the_permitted_namespace(
    kiln: in_process_cli.Kiln, as_account: Callable[[str], None]
) -> None:
    as_account("viewer")
    done = kiln("status")
    assert (done.code, done.err) == (0, "")
    assert "(in namespace default)" in done.out
    assert "nodes: not shown: " in done.out
    assert "Shows only namespace default: you may not read all; use -n for another one." in done.out
    facts = json.loads(kiln("status", "-o", "json").out)
    assert [cluster["namespace"] for cluster in facts["clusters"]] == ["default"]
    assert (facts["onlyIn"], set(facts["missing"])) == ("default", {"nodes"})
    elsewhere = kiln("status", "-n", "other")
    assert (elsewhere.code, "; -n names another namespace" in elsewhere.out) == (0, True)


def test_file_jobs_of_all_namespaces(
    kiln: in_process_cli.Kiln, as_account: Callable[[str], None]
) -> None:
    kiln("upload", "in.jsonl", "--mapper", "identity", "--name", "far", "--paused")
    header, row, *_ = kiln("files", "-A").out.splitlines()
    assert (header.split()[:2], row.split()[0]) == (["NAMESPACE", "ID"], "default")
    assert kiln("get", "files", "-A").out.split()[0] == "NAMESPACE"
    one = kiln("files", "far", "-A")
    assert (one.code, "-n NAMESPACE" in one.err) == (exits.Exit.USAGE, True)
    as_account("files")
    assert kiln("files", "-A").code == exits.Exit.FORBIDDEN
    assert kiln("files").code == 0
