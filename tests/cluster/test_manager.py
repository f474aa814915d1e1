"""The installed manager: its manifests, users' rights, its failures and its return."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hack.kube import access

from support import kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(180)

Kiln = Callable[..., subprocess.CompletedProcess[str]]

SOON_S = 5.0
"""Time limit within which users must see why nothing runs."""


def as_user(manager: kube_manager.Manager, kubeconfig: Path, namespace: str) -> Kiln:
    """Run `kiln` with the kubeconfig of a user, in a namespace."""

    def kiln(
        *arguments: str, code: int = 0, variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = {**manager.kube.environment, "KUBECONFIG": str(kubeconfig)}
        words = [kube_cluster.KILN, "-n", namespace, *arguments]
        done = subprocess.run(
            words,
            env={**environment, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        details = f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == code, f"{details}\n{manager.described()}"
        return done

    return kiln


def with_token(manager: kube_manager.Manager, namespace: str, *roles: str) -> Path:
    """Return a kubeconfig with the token of an account that has these ClusterRoles there."""
    name = kube_servers.fresh_name("account")
    kubectl, here = manager.kube.kubectl, f"--namespace={namespace}"
    kubectl("create", "serviceaccount", name, here)
    for role in roles:
        kubectl(
            *("create", "rolebinding", f"{name}-{role}", here),
            *(f"--clusterrole={role}", f"--serviceaccount={namespace}:{name}"),
        )
    token = kubectl("create", "token", name, here).strip()
    return manager.kube.token_kubeconfig(name, token)


def with_certificate(manager: kube_manager.Manager, namespace: str, *roles: str) -> Path:
    """Return a kubeconfig with the client certificate of a user who has these ClusterRoles
    there.
    """
    name = kube_servers.fresh_name("user")
    for role in roles:
        manager.kube.kubectl(
            *("create", "rolebinding", f"{name}-{role}", f"--namespace={namespace}"),
            *(f"--clusterrole={role}", f"--user={name}"),
        )
    return manager.kube.kubeconfig_for(name)


def test_applying_the_same_again_changes_nothing(manager: kube_manager.Manager) -> None:
    text = manager.manifests()
    assert text == manager.manifests()
    assert manager.kube.kubectl("diff", "-f", "-", stdin=text) == ""
    before = _generation(manager)
    manager.kube.kubectl("apply", "-f", "-", stdin=text)
    assert _generation(manager) == before


def _generation(manager: kube_manager.Manager) -> int:
    found = manager.kube.get(
        "statefulset", "kilnwork-manager", f"--namespace={kube_manager.NAMESPACE}"
    )
    generation: int = found["metadata"]["generation"]
    return generation


def test_other_options_are_accepted_by_the_api_server(manager: kube_manager.Manager) -> None:
    choices: Sequence[Sequence[str]] = (
        ("--storage-class", "fast", "--storage-size", "1Ti", "--priority-class", "x"),
        ("--storage", "hostPath", "--host-path", "/var/kiln", "--pull-secret", "registry"),
        ("--only-in", "default", "--only-in", "kube-public", "--drivers-in", "default"),
        ("--toleration", "a=b:NoSchedule", "--node-selector", "a=b", "--cpu", "2", "-o", "json"),
    )
    for options in choices:  # an existing namespace: a dry run creates none
        made = manager.kube.kiln("install", "-n", "kube-public", *options).stdout
        manager.kube.kubectl("apply", "--dry-run=server", "-f", "-", stdin=made)


def test_installation_supports_dry_run(manager: kube_manager.Manager) -> None:
    kubectl, name = manager.kube.kubectl, kube_servers.fresh_name("tried")
    only = manager.kube.kiln("install", "-n", name, "--only", "namespace").stdout
    everything = manager.kube.kiln("install", "-n", name, "--drivers-in", "default").stdout
    with pytest.raises(access.Failed, match=f'namespaces "{name}" not found'):
        kubectl("apply", "--dry-run=server", "-f", "-", stdin=everything)
    kubectl("apply", "-f", "-", stdin=only)
    try:
        tried = kubectl("apply", "--dry-run=server", "-f", "-", stdin=everything)
        assert "statefulset.apps/kilnwork-manager created (server dry run)" in tried
        with pytest.raises(access.Failed, match="exit status 1") as differs:
            kubectl("diff", "-f", "-", stdin=everything)
        assert "kind: StatefulSet" in str(differs.value)
        assert manager.kube.get("all", f"--namespace={name}")["items"] == []
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def test_task_spec_is_immutable(manager: kube_manager.Manager, team: str) -> None:
    """By the ValidatingAdmissionPolicy; metadata may change."""
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{team}/taskobjects"
    points = [[number, number / 7] for number in range(20_000)]
    body = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "TaskObject",
        "metadata": {"name": "input"},
        "data": {"count": "0", "points": points},
    }
    http = manager.kube.http
    http.post(path, body).ok()
    merge = kube_servers.MERGE
    label = {"metadata": {"labels": {"a": "b"}}}
    http.patch(f"{path}/input", label, content_type=merge).ok()
    for change in ({"data": {"count": "1"}}, {"data": None}):
        response = http.patch(f"{path}/input", change, content_type=merge)
        assert response.status == 422, response.json
        assert "field is immutable" in response.message


def test_claims_need_the_right_to_use_the_executor(
    manager: kube_manager.Manager, team: str
) -> None:
    """By the ValidatingAdmissionPolicy: by RBAC this user may write all claims."""
    kubectl, http = manager.kube.kubectl, manager.kube.http
    everything = "--resource=taskclaims.kilnwork.dev,taskclaims.kilnwork.dev/status"
    kubectl("create", "role", "claims", f"-n={team}", "--verb=*", everything)
    kubectl("create", "rolebinding", "claims", f"-n={team}", "--role=claims", "--user=ann")
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{team}/taskclaims"
    body = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "TaskClaim",
        "metadata": {"name": "c"},
        "spec": {"executor": "mine"},
    }
    task = {"kind": "Task", "metadata": {"name": "claimed"}, "spec": {"external": body["spec"]}}
    succeeded = {"status": {"outcome": {"state": "Succeeded", "result": 1}}}
    ann = http.impersonating("ann")
    assert ann.post(path, body).status == 403
    http.post(path, body).ok()
    for by, status in ((ann, 403), (http, 422)):
        assert by.patch(f"{path}/c/status", succeeded).status == status
    http.post(path.replace("taskclaims", "tasks"), {**body, **task}).ok()
    waiting.wait_until(
        lambda: http.get(f"{path}/c").json.get("status", {}).get("phase") == "Claimed",
        what="the claim has a task",
        timeout_s=60,
    )
    http.patch(f"{path}/c/status", succeeded).ok()
    kubectl("wait", "--for=jsonpath={.status.state}=Success", f"-n={team}", "task/claimed")
    failed = {"status": {"outcome": {"state": "Failed"}}}
    assert "cannot be changed" in http.patch(f"{path}/c/status", failed).message


@pytest.mark.parametrize("identity", [with_token, with_certificate])
def test_every_command_works_through_the_api_server(
    manager: kube_manager.Manager, team: str, identity: Callable[..., Path]
) -> None:
    kiln = as_user(manager, identity(manager, team, "edit"), team)
    name = kube_servers.fresh_name("greet")
    assert "hello\n" in kiln("run", "--watch", "--name", name, "--", "echo", "hello").stdout
    kiln("wait", name, "--for", "state=Success", "--timeout", "50s")
    assert kiln("logs", name).stdout == "hello\n"
    assert "succeeded" in kiln("why", name).stdout
    assert name in kiln("tasks", "--state", "Success").stdout
    assert name in kiln("get", "tasks").stdout
    assert "manager in kilnwork-system is ready" in kiln("status").stdout
    kiln("retry", name, "--force")
    kiln("wait", name, "--for", "state=Success", "--timeout", "50s")
    long = kube_servers.fresh_name("long")
    kiln("run", "--name", long, "--", "sleep", "60")
    kiln("wait", long, "--for", "state=Running", "--timeout", "50s")
    kiln("cancel", long)
    kiln("wait", long, "--for", "state=Killed", "--timeout", "50s")


@pytest.mark.parametrize("identity", [with_token, with_certificate])
def test_viewer_cannot_cancel(
    manager: kube_manager.Manager, team: str, identity: Callable[..., Path]
) -> None:
    name = kube_servers.fresh_name("seen")
    editor = as_user(manager, with_token(manager, team, "edit"), team)
    editor("run", "--name", name, "--", "sh", "-c", "echo seen; exec sleep 60")
    kiln = as_user(manager, identity(manager, team, "view"), team)
    kiln("wait", name, "--for", "state=Running", "--timeout", "50s")
    waiting.wait_until(lambda: name in kiln("tasks").stdout, what="it is listed")
    waiting.wait_until(lambda: kiln("logs", name).stdout == "seen\n", what="it is read")
    assert "forbidden" in kiln("cancel", name, code=7).stderr
    editor("cancel", name)


def test_missing_rights_are_named(manager: kube_manager.Manager, team: str) -> None:
    kiln = as_user(manager, with_token(manager, team), team)
    assert 'cannot list resource "tasks"' in kiln("tasks", code=7).stderr
    kiln = as_user(manager, with_certificate(manager, team), team)
    refused = kiln("tasks", code=7).stderr
    assert "kilnwork-driver" in refused
    assert 'cannot create resource "serviceaccounts/token"' in refused


def test_namespace_without_drivers_error_names_the_remedy(
    manager: kube_manager.Manager, namespace: str
) -> None:
    kiln = as_user(manager, manager.kube.kubeconfig, namespace)
    assert f"--drivers-in {namespace}" in kiln("tasks", code=7).stderr


def test_manager_in_another_namespace_is_named(manager: kube_manager.Manager, team: str) -> None:
    kiln = as_user(manager, manager.kube.kubeconfig, team)
    details = kiln("tasks", code=3, variables={"KILN_MANAGER_NAMESPACE": "default"}).stderr
    assert "no manager is installed in namespace default" in details


def test_unschedulable_workers_are_reported_within_5_s(
    manager: kube_manager.Manager, namespace: str
) -> None:
    cluster = manager.cluster("default", namespace=namespace)
    cluster["spec"]["template"] = {"spec": {"nodeSelector": {"no": "such"}}}
    _run(manager, namespace, cluster)
    _reason(manager, namespace, "Unschedulable", "nodes are available")


def test_exceeded_quota_is_reported_within_5_s(
    manager: kube_manager.Manager, namespace: str
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": namespace},
        "spec": {"hard": {"pods": "0"}},
    }
    manager.kube.apply(quota)
    waiting.wait_until(
        lambda: manager.kube.get("quota", "none", f"--namespace={namespace}").get("status"),
        what="the quota counts",
    )
    _run(manager, namespace, manager.cluster("default", namespace=namespace))
    _reason(manager, namespace, "QuotaExceeded", "exceeded quota: none")


def _run(manager: kube_manager.Manager, namespace: str, cluster: dict[str, Any]) -> None:
    manager.kube.apply(cluster, _task("waits", namespace, "true"))


def _task(name: str, namespace: str, script: str) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"command": ["sh", "-c", script]},
    }


def _reason(manager: kube_manager.Manager, namespace: str, reason: str, text: str) -> None:
    def reported() -> bool:
        message = manager.task("waits", namespace).get("status", {}).get("message", "")
        return text in message

    def explained() -> bool:
        details = manager.kube.kiln("why", "taskcluster/default", "-n", namespace).stdout
        return f"({reason})" in details

    waiting.wait_until(reported, what=f"the Task says {text!r}", timeout_s=SOON_S)
    waiting.wait_until(explained, what=f"the TaskCluster says {reason}", every_s=0.2)


def test_second_manager_waits_for_the_first(manager: kube_manager.Manager, tmp_path: Path) -> None:
    argv = [kube_cluster.KILN, "manager", "--data", str(tmp_path / "data")]
    argv += ["--listen", f"{manager.kube.address}:17443", "--advertise", "unix"]
    log = tmp_path / "log"
    with log.open("wb") as file:
        second = subprocess.Popen(argv, env=manager.kube.environment, stdout=file, stderr=file)
    try:
        waiting.wait_until(
            lambda: "holds the Lease" in _ready(manager.kube.address), what="it says who leads"
        )
        assert "leads on" not in log.read_text()
    finally:
        second.send_signal(signal.SIGTERM)
        assert second.wait(40) == 0, log.read_text()


def _ready(address: str) -> str:
    done = subprocess.run(
        ["curl", "-sk", "--max-time", "5", f"https://{address}:17443/readyz"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout


def test_killed_manager_resumes_without_repeating(manager: kube_manager.Manager, team: str) -> None:
    """Each task leaves one line, so none is lost or run twice, and the worker keeps running."""
    kiln = as_user(manager, with_token(manager, team, "edit"), team)
    names = [kube_servers.fresh_name("task") for _ in range(8)]
    manager.kube.apply(*(_task(name, team, f"echo {name}; sleep 1") for name in names))
    kiln("wait", names[0], "--for", "state=Success", "--timeout", "40s")
    process = waiting.wait_until(lambda: _process(manager), what="its process is found")
    os.kill(process, signal.SIGKILL)
    waiting.wait_until(lambda: _process(manager) not in (0, process), what="it is back")
    manager.wait_ready()
    for name in names:
        kiln("wait", name, "--for", "state=Success", "--timeout", "60s")
        status = manager.task(name, team)["status"]
        assert (status["attempts"], status.get("losses", 0)) == (1, 0)
        assert kiln("logs", name).stdout == f"{name}\n"
    assert manager.refusals() == []


def _process(manager: kube_manager.Manager) -> int:
    """Return the pid of the manager on a node of ours; 0 while there is none."""
    uid = manager.kube.get("pod", kube_manager.POD, f"--namespace={kube_manager.NAMESPACE}")
    here = Path("/proc")
    for entry in here.iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            mine = uid["metadata"]["uid"].encode() in environment
            if b"manager" in words and mine:
                return int(entry.name)
    return 0
