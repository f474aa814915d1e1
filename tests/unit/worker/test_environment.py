"""The variables of a command."""

import json
from pathlib import Path

import pytest

from kilnwork.api import attempts, sync_set_env, task
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.worker import directories, environment, errors

REF = attempts.AttemptRef(ids.new_task_id(), 2, 3)


@pytest.fixture
def place(tmp_path: Path) -> directories.AttemptDirectory:
    made = directories.Directories()
    found = made.make(REF, inputs=None)
    found.listener.close()
    made.close()
    (tmp_path / "work").mkdir()
    return directories.AttemptDirectory(
        tmp_path / "work", tmp_path / "socket", found.listener, None
    )


def run(*env: task.EnvVar) -> messages.Run:
    return messages.Run(REF, "team", "task-0", task.TaskSpec(env=env), None)


def account(mounts: Path) -> None:
    directory = mounts / "var/run/secrets/kubernetes.io/serviceaccount"
    directory.mkdir(parents=True)
    (directory / "token").write_text("hush-hush")


def test_env_of_the_spec_overrides_the_pod_but_not_the_contract(
    place: directories.AttemptDirectory, tmp_path: Path
) -> None:
    pod = {"A": "pod", "B": "pod", "KILN_TOKEN_FILE": "/token", "KILN_CONTAINER_ID": "c"}
    given = environment.Environment(pod, mounts=tmp_path, pod_uid="u")
    spec = run(
        task.EnvVar(name="B", value="spec"),
        task.EnvVar(name="TASK_NAME", value="spec"),
        task.EnvVar(name="TMPDIR", value="/elsewhere"),
    )
    found = given.for_attempt(spec, place)
    assert (found["A"], found["B"], found["TASK_NAME"]) == ("pod", "spec", "task-0")
    assert (found["KILN_RUN"], found["KILN_ATTEMPT"]) == ("2", "3")
    assert found["TMPDIR"] == "/elsewhere"
    assert found["KILN_CONTAINER_ID"] == "c"
    assert found["KILN_ATTEMPT_ID"] == str(REF)
    assert not {"KILN_TOKEN_FILE", "KILN_INPUT", "KUBECONFIG"} & set(found)


def test_each_attempt_has_its_own_set_output_directory(
    place: directories.AttemptDirectory, tmp_path: Path
) -> None:
    pod = {sync_set_env.OUTPUTS: str(tmp_path)}
    given = environment.Environment(pod, mounts=tmp_path, pod_uid="u")
    spec = run(task.EnvVar(name=sync_set_env.OUTPUTS, value="/elsewhere"))
    found = Path(given.for_attempt(spec, place)[sync_set_env.OUTPUTS])
    assert found == tmp_path / f"{ids.task_text(REF.task)}.2.3"
    assert found.is_dir()
    none = environment.Environment({}, mounts=tmp_path, pod_uid="u").for_attempt(run(), place)
    assert sync_set_env.OUTPUTS not in none


def test_missing_set_output_directory_is_reported(
    place: directories.AttemptDirectory, tmp_path: Path
) -> None:
    pod = {sync_set_env.OUTPUTS: str(tmp_path / "gone")}
    given = environment.Environment(pod, mounts=tmp_path, pod_uid="u")
    with pytest.raises(errors.CannotStartHere, match="directory of its outputs"):
        given.for_attempt(run(), place)


def test_without_service_account_there_is_no_kubeconfig(
    place: directories.AttemptDirectory, tmp_path: Path
) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = environment.Environment(pod, mounts=tmp_path, pod_uid="u").for_attempt(run(), place)
    assert not any(name.startswith("KUBE") for name in found)


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_service_account_becomes_a_kubeconfig_in_json(
    place: directories.AttemptDirectory, tmp_path: Path, host: str, server: str
) -> None:
    account(tmp_path)
    pod = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    found = environment.Environment(pod, mounts=tmp_path, pod_uid="u").for_attempt(run(), place)
    file = Path(found["KUBECONFIG"])
    assert file.stat().st_mode & 0o777 == 0o600
    config = json.loads(file.read_text())
    assert config["clusters"][0]["cluster"]["server"] == server
    assert config["contexts"][0]["context"]["namespace"] == "team"
    assert "hush-hush" not in file.read_text()
    assert found["KUBERNETES_SERVICE_HOST"] == host
