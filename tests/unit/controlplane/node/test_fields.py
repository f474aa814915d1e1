"""The downward API: fields and resources as text."""

from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.node import container_inputs, errors, fields, pods

FACTS = container_inputs.Facts(
    node="n1", address="10.0.0.5", workdir="/", env={}, service_env={}, capacity={"cpu": "8"}
)
METADATA = {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b/c": '"x"', "a": "ä"}}


def pod(**container: Any) -> pods.Pod:
    spec = {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i", **container}]}
    return msgspec.convert({"metadata": METADATA, "spec": spec}, pods.Pod)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['a']", "ä"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.0.0.5"),
        ("status.podIPs", "10.0.0.5"),
    ],
)
def test_fields(path: str, value: str) -> None:
    assert fields.field(path, pod(), FACTS) == value
    assert fields.file_content(path, pod(), FACTS) == value


def test_all_labels_are_for_files_only() -> None:
    assert fields.file_content("metadata.labels", pod(), FACTS) == 'a="ä"\nb/c="\\"x\\""'
    with pytest.raises(errors.NotYet, match=r"unsupported fieldPath: metadata\.labels"):
        fields.field("metadata.labels", pod(), FACTS)


@pytest.mark.parametrize(
    ("name", "divisor", "value"),
    [
        ("limits.cpu", "1", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.cpu", "1", "1"),
        ("requests.memory", "1Mi", "64"),
        ("limits.memory", "0", "67108864"),
        ("limits.other", "1", "0"),
        ("requests.other", "1", "0"),
    ],
)
def test_resources_are_rounded_up(name: str, divisor: str, value: str) -> None:
    resources = {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "100m"}}
    container = pod(resources=resources).spec.containers[0]
    reference = pods.ResourceReference(resource=name, divisor=divisor)
    assert fields.resource(reference, container, FACTS) == value


def test_a_missing_limit_is_what_the_node_has() -> None:
    reference = pods.ResourceReference(resource="limits.cpu", divisor="1")
    assert fields.resource(reference, pod().spec.containers[0], FACTS) == "8"


@pytest.mark.parametrize("name", ["cpu", "limits.", "other.cpu"])
def test_other_resources_wait(name: str) -> None:
    reference = pods.ResourceReference(resource=name, divisor="1")
    with pytest.raises(errors.NotYet, match="unsupported container resource"):
        fields.resource(reference, pod().spec.containers[0], FACTS)
