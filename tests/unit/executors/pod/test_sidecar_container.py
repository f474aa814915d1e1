"""What is added to a Pod for the worker contract, and what its sidecar says of the result."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, pod, substitution, task, termination_message
from kilnwork.executors import port
from kilnwork.executors.pod import sidecar_container, template
from kilnwork.kit import ids

REF = attempts.AttemptRef(ids.TaskId(bytes(15) + b"\1"), 2, 3)
SETTINGS = sidecar_container.SidecarOptions(
    image="worker:1", command=("python", "-m", "m"), channel="tls://kilnwork.k.svc:7443", ca=b"PEM"
)
DIRECTORY = "/var/run/kilnwork"


def made(
    *containers: dict[str, Any], inputs: bytes | None = None, **spec: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec of a Pod, and the sidecar in it."""
    of = task.PodTemplate(spec={"containers": list(containers), **spec})
    attempt = port.Attempt(
        ref=REF, namespace="ns", name="t", owner_uid="", inputs=inputs, spec=task.TaskSpec(pod=of)
    )
    found = template.pod(attempt, SETTINGS)["spec"]
    return found, found["initContainers"][0]


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def test_every_container_has_the_files_and_only_the_sidecar_a_token() -> None:
    spec, added = made({"name": "a"}, inputs=b"{}", initContainers=[{"name": "i"}])
    assert [c["name"] for c in spec["initContainers"]] == ["kilnwork", "i"]
    assert added["restartPolicy"] == "Always"
    at = "$(CONTAINER_SANDBOX_MOUNT_POINT)" + DIRECTORY
    for container in (*spec["containers"], spec["initContainers"][1]):
        assert container["env"][0] == {"name": "CONTAINER_SANDBOX_MOUNT_POINT", "value": ""}
        given = env(container)
        assert (given["KILN_DIR"], given["KILN_INPUT"]) == (at, f"{at}/input")
        assert (given["KILN_OUTPUT"], given["KILN_SOCKET"]) == (f"{at}/output", f"{at}/socket")
        assert [m["mountPath"] for m in container["volumeMounts"]] == [DIRECTORY]
    token = spec["volumes"][1]["projected"]["sources"][0]["serviceAccountToken"]
    assert token["audience"] == "attempt.kilnwork.dev"
    assert added["volumeMounts"][1]["name"] == spec["volumes"][1]["name"]
    assert "automountServiceAccountToken" not in spec


def test_there_is_no_input_file_where_there_are_no_inputs() -> None:
    spec, added = made({"name": "a"})
    assert "KILN_INPUT" not in env(spec["containers"][0])
    assert env(added)["KILN_HAS_INPUT"] == "false"


def test_variables_of_a_container_take_precedence() -> None:
    mine = {"name": "KILN_OUTPUT", "value": "/mine"}
    spec, _ = made({"name": "a", "env": [mine]})
    given = spec["containers"][0]["env"]
    assert [entry for entry in given if entry["name"] == "KILN_OUTPUT"] == [mine]


def test_a_template_can_do_without() -> None:
    of = task.PodTemplate(
        metadata={"annotations": {sidecar_container.ANNOTATION: "false"}}, spec={"containers": [{}]}
    )
    spec = task.TaskSpec(pod=of)
    attempt = port.Attempt(ref=REF, namespace="ns", name="t", owner_uid="", spec=spec)
    found = template.pod(attempt, SETTINGS)["spec"]
    assert "initContainers" not in found
    assert "volumes" not in found


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("initContainers", "kilnwork"),
        ("containers", "kilnwork"),
        ("volumes", "kilnwork"),
        ("volumes", "kilnwork-token"),
    ],
)
def test_names_that_it_needs_are_refused_only_where_it_is_added(group: str, name: str) -> None:
    of = task.PodTemplate(spec={"containers": [{"name": "a"}], group: [{"name": name}]})
    attempt = port.Attempt(
        ref=REF, namespace="ns", name="t", owner_uid="", spec=task.TaskSpec(pod=of)
    )
    field = rf"^spec\.pod\.spec\.{group}\[0\]\.name {name} is .* sidecar"
    with pytest.raises(substitution.InvalidTemplate, match=field):
        template.pod(attempt, SETTINGS)
    of.metadata["annotations"] = {sidecar_container.ANNOTATION: "false"}
    assert [entry["name"] for entry in template.pod(attempt, SETTINGS)["spec"][group]] == [name]


LIMITS = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((LIMITS, LIMITS), {"cpu": "200m", "memory": "128Mi"}),
        ((LIMITS, {"memory": "1Gi"}), {"memory": "128Mi"}),
        ((LIMITS, {}), {}),
    ],
)
def test_sidecar_has_limits_if_all_containers_have(
    limits: tuple[dict[str, str], ...], expected: dict[str, str]
) -> None:
    named = [{"name": str(n), "resources": {"limits": one}} for n, one in enumerate(limits)]
    _, added = made(*named)
    resources = added["resources"]
    assert resources.get("limits", {}) == expected
    assert {name: resources["requests"][name] for name in expected} == expected


def test_sidecar_has_the_user_of_all_containers() -> None:
    mine = {"runAsUser": 7, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    _, added = made({"name": "a", "securityContext": mine}, {"name": "b", "securityContext": mine})
    alone = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert added["securityContext"] == {**alone, **mine}
    _, added = made({"name": "a", "securityContext": mine}, {"name": "b"})
    assert added["securityContext"] == alone


def ended(message: str | None, code: int = 0) -> pod.Pod:
    state = {} if message is None else {"terminated": {"exitCode": code, "message": message}}
    status = {"initContainerStatuses": [{"name": "kilnwork", "state": state}]}
    return msgspec.convert({"metadata": {"name": "p"}, "status": status}, pod.Pod)


BLOB = attempts.Payload(termination_message.BYTES, b"", b"\1" * 32, 70_000)


@pytest.mark.parametrize(
    "payload",
    [
        attempts.Payload(attempts.JSON, b'{"a": [1, "\\n"]}\n'.strip()),
        attempts.Payload(termination_message.BYTES, bytes(range(256))),
        BLOB,
    ],
)
def test_a_result_comes_as_it_was_written(payload: attempts.Payload) -> None:
    message = msgspec.json.encode(termination_message.of_payload(payload)).decode()
    assert sidecar_container.result(ended(message)) == payload


def test_a_pod_without_a_sidecar_or_a_result_has_none() -> None:
    assert sidecar_container.result(ended("{}")) is None
    assert sidecar_container.result(msgspec.convert({"metadata": {"name": "p"}}, pod.Pod)) is None


@pytest.mark.parametrize(
    ("seen", "reason", "loss"),
    [
        (ended(None), "ResultLost", True),
        (ended("", 137), "ResultLost", True),
        (ended('{"result": [1, 2'), "ResultLost", True),
        (ended('{"digest": "sha256:12", "sizeBytes": 3}'), "ResultLost", True),
        (ended('{"message": "no manager"}', 1), "ResultLost", True),
        (ended('{"reason": "InvalidResult", "message": "no JSON"}'), "InvalidResult", False),
    ],
)
def test_no_result_is_taken_for_none(seen: pod.Pod, reason: str, *, loss: bool) -> None:
    with pytest.raises(port.ResultError) as caught:
        sidecar_container.result(seen)
    assert (caught.value.reason, caught.value.is_loss) == (reason, loss)


def test_messages_of_all_containers_fit_a_pod() -> None:
    for containers in range(1, 500):
        longest = termination_message.message_bytes(containers)
        assert longest <= termination_message.MAX_MESSAGE_BYTES
        assert longest * containers <= termination_message.MAX_POD_BYTES
    assert len(
        msgspec.json.encode(termination_message.of_payload(BLOB))
    ) <= termination_message.message_bytes(84)
