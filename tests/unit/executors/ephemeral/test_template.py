"""The container of an attempt, and when a Pod has had enough of them."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, names, pod, task
from kilnwork.executors import port
from kilnwork.executors.ephemeral import limits, template
from kilnwork.kit import ids

REF = attempts.AttemptRef(ids.TaskId(bytes(range(16))), 3, 12)
PLACE = port.WorkerPod(pod="w-0", pod_uid="u", environment=(("KILN_RUN", "3"), ("A", "theirs")))


def worker(**more: Any) -> pod.Pod:
    container = {"name": "worker", "image": "ours", "imagePullPolicy": "Never", "workingDir": "/w"}
    spec = {"containers": [{"name": "mesh", "image": "m"}, container], **more}
    return msgspec.convert({"metadata": {"name": "w-0"}, "spec": spec}, pod.Pod)


def made(seen: pod.Pod, **spec: Any) -> dict[str, Any]:
    given = msgspec.convert(spec, task.TaskSpec)
    attempt = port.Attempt(ref=REF, namespace="ns", name="t", owner_uid="", spec=given, place=PLACE)
    return template.container(attempt, PLACE, seen)


def test_its_name_leads_back_to_the_attempt() -> None:
    name = template.container_name(REF)
    assert names.dns_label(name) == name
    assert len(template.container_name(attempts.AttemptRef(REF.task, 2**31, 2**31))) <= 63
    assert template.ref_of(name) == REF
    assert template.ref_of("debugger-x7f2p") is None
    assert template.ref_of(name + "x") is None


def test_without_an_image_it_is_the_workers() -> None:
    found = made(worker(), command=["true"])
    assert (found["image"], found["imagePullPolicy"], found["workingDir"]) == (
        "ours",
        "Never",
        "/w",
    )


def test_with_an_image_of_its_own_it_is_nothing_but_that() -> None:
    found = made(worker(), image="mine:1", args=["x"])
    assert found["image"] == "mine:1"
    assert not {"imagePullPolicy", "workingDir", "command"} & found.keys()
    assert found["args"] == ["x"]


def test_the_tasks_own_variables_are_last_and_win() -> None:
    found = made(worker(), command=["true"], env=[{"name": "A", "value": "mine"}])
    assert found["env"] == [{"name": "KILN_RUN", "value": "3"}, {"name": "A", "value": "mine"}]


def test_texts_are_escaped_from_expansion_by_kubernetes() -> None:
    found = made(worker(), command=["sh", "-c", "echo $(date) $$ $HOME"], args=["$HOME"])
    assert found["command"][2] == "echo $$(date) $$$$ $$HOME"
    assert found["args"] == ["$HOME"]


def test_container_mounts_volume_and_service_account_of_the_pod() -> None:
    mounts = [m["mountPath"] for m in made(worker(), command=["true"])["volumeMounts"]]
    assert mounts == ["/var/run/kilnwork"]
    with_account = worker(volumes=[{"name": "data"}, {"name": "kube-api-access-x7"}])
    [_, account] = made(with_account, command=["true"])["volumeMounts"]
    assert account == {
        "name": "kube-api-access-x7",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }


def with_containers(count: int, annotations: dict[str, str]) -> pod.Pod:
    containers = [{"name": f"c{number}"} for number in range(count)]
    body = {
        "metadata": {"name": "w", "annotations": annotations},
        "spec": {"ephemeralContainers": containers},
    }
    return msgspec.convert(body, pod.Pod)


@pytest.mark.parametrize(
    ("count", "size", "annotations", "over"),
    [
        (limits.MAX_CONTAINERS - 1, limits.MAX_BYTES - 1, {}, False),
        (limits.MAX_CONTAINERS, 0, {}, True),
        (1, limits.MAX_BYTES, {}, True),
        (9, 0, {limits.CONTAINERS_ANNOTATION: "10"}, False),
        (10, 0, {limits.CONTAINERS_ANNOTATION: "10"}, True),
        (1, 5000, {limits.BYTES_ANNOTATION: "5000"}, True),
        (limits.MAX_CONTAINERS, 0, {limits.CONTAINERS_ANNOTATION: "100000"}, True),
        (5, 0, {limits.CONTAINERS_ANNOTATION: "many"}, False),
    ],
)
def test_when_a_pod_has_had_enough(
    count: int, size: int, annotations: dict[str, str], *, over: bool
) -> None:
    assert limits.is_used_up(with_containers(count, annotations), size) is over


def test_kubernetes_reads_what_is_taken_from_a_secret() -> None:
    source = {"secretKeyRef": {"name": "db", "key": "token"}}
    found = made(worker(), command=["true"], env=[{"name": "TOKEN", "valueFrom": source}])
    assert {"name": "TOKEN", "valueFrom": source} in found["env"]
