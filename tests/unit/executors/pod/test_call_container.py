"""The Pod of a Python call: one container that runs it, with a token, and no sidecar."""

from typing import Any

import pytest

from kilnwork.api import attempts, task
from kilnwork.executors import port
from kilnwork.executors.pod import sidecar_container, template
from kilnwork.kit import ids

REF = attempts.AttemptRef(ids.TaskId(bytes(15) + b"\1"), 2, 3)
SETTINGS = sidecar_container.SidecarOptions(
    image="worker:1",
    command=("python3", "-m", "kilnwork.worker.sidecar"),
    channel="tls://kilnwork.k.svc:7443",
    ca=b"PEM",
)


def attempt(**spec: Any) -> port.Attempt:
    of = task.TaskSpec(pod=task.PodTemplate(spec=spec), call=task.Call("m:f"))
    return port.Attempt(ref=REF, namespace="ns", name="t", owner_uid="", spec=of)


def made(**spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec of the Pod, and its container."""
    found = template.pod(attempt(**spec), SETTINGS)["spec"]
    (container,) = found["containers"]
    return found, container


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def test_an_empty_template_is_a_pod_of_the_workers_image() -> None:
    spec, container = made()
    assert (container["name"], container["image"]) == ("main", "worker:1")
    assert container["command"] == ["python3", "-m", "kilnwork.worker.pod_call"]
    assert spec["restartPolicy"] == "Never"
    assert "initContainers" not in spec


def test_settings_of_the_template_are_kept() -> None:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    mount = {"name": "data", "mountPath": "/data"}
    volume = {"name": "data", "emptyDir": {}}
    given = {
        "name": "gpu",
        "image": "mine:${task.attempt}",
        "command": ["/opt/python"],
        "resources": resources,
        "volumeMounts": [mount],
        "env": [{"name": "MINE", "value": "1"}, {"name": "KILN_CHANNEL", "value": "else"}],
    }
    spec, container = made(containers=[given], volumes=[volume], nodeSelector={"a": "b"})
    assert (container["name"], container["image"]) == ("gpu", "mine:3")
    assert container["command"] == ["/opt/python", "-m", "kilnwork.worker.pod_call"]
    assert (container["resources"], container["volumeMounts"][0]) == (resources, mount)
    assert (spec["volumes"][0], spec["nodeSelector"]) == (volume, {"a": "b"})
    values = env(container)
    assert (values["MINE"], values["KILN_CHANNEL"]) == ("1", "tls://kilnwork.k.svc:7443")
    assert [entry["name"] for entry in container["env"]].count("KILN_CHANNEL") == 1


def test_call_container_names_its_attempt_and_has_the_only_token() -> None:
    spec, container = made(initContainers=[{"name": "helper", "restartPolicy": "Always"}])
    values = env(container)
    assert (values["KILN_TASK_ID"], values["KILN_RUN"], values["KILN_ATTEMPT"]) == (
        ids.task_text(REF.task), "2", "3",
    )  # fmt: skip
    assert (values["KILN_NAMESPACE"], values["KILN_CA"]) == ("ns", "PEM")
    source = spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]
    assert source["audience"] == "attempt.kilnwork.dev"
    assert container["volumeMounts"][0]["name"] == spec["volumes"][0]["name"]
    assert "volumeMounts" not in spec["initContainers"][0]


def test_nothing_that_was_given_is_changed() -> None:
    given = {"name": "main", "env": [{"name": "A", "value": "b"}]}
    made(containers=[given])
    assert given == {"name": "main", "env": [{"name": "A", "value": "b"}]}


def test_without_a_manager_there_is_no_call() -> None:
    with pytest.raises(ValueError, match="has a call, and nothing says where the manager is"):
        template.pod(attempt(), None)
