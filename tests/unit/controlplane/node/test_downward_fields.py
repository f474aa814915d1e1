"""The downward API: fields of a Pod and resources of a container as text."""

import msgspec
import pytest

from kilnwork.controlplane.node import container_input_types, downward_fields, errors, pod_types

FACTS = container_input_types.NodeFacts(
    node="n1",
    address="127.0.0.1",
    workdir="/work",
    env={},
    service_env={},
    capacity={"cpu": "4", "memory": "1Gi"},
)
POD = msgspec.convert(
    {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u1",
            "labels": {"b": "2", "a": 'say "x"'},
            "annotations": {"k": "v"},
        },
        "spec": {"serviceAccountName": "robot", "containers": []},
    },
    pod_types.Pod,
)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u1"),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "127.0.0.1"),
        ("status.podIPs", "127.0.0.1"),
        ("metadata.labels['b']", "2"),
        ("metadata.labels['missing']", ""),
        ("metadata.annotations['k']", "v"),
    ],
)
def test_field_is_returned_as_text(path: str, text: str) -> None:
    assert downward_fields.field(path, POD, FACTS) == text


@pytest.mark.parametrize("path", ["metadata.labels", "spec.containers", "status.phase"])
def test_unsupported_field_is_named(path: str) -> None:
    with pytest.raises(errors.InputsNotReady, match=f"unsupported fieldPath: {path}"):
        downward_fields.field(path, POD, FACTS)


def test_file_can_contain_all_labels_sorted_and_quoted() -> None:
    found = downward_fields.file_content("metadata.labels", POD, FACTS)
    assert found == 'a="say \\"x\\""\nb="2"'
    assert downward_fields.file_content("metadata.name", POD, FACTS) == "p"


def container(**resources: dict[str, str]) -> pod_types.Container:
    return msgspec.convert({"name": "c", "resources": resources}, pod_types.Container)


@pytest.mark.parametrize(
    ("resource", "divisor", "resources", "text"),
    [
        ("limits.cpu", "0", {"limits": {"cpu": "1500m"}}, "2"),
        ("limits.cpu", "1m", {"limits": {"cpu": "1500m"}}, "1500"),
        ("limits.memory", "1Mi", {}, "1024"),
        ("limits.unknown", "0", {}, "0"),
        ("requests.cpu", "0", {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}, "1"),
        ("requests.cpu", "0", {"limits": {"cpu": "3"}}, "3"),
        ("requests.cpu", "0", {}, "0"),
    ],
)
def test_resource_is_rounded_up_in_units_of_its_divisor(
    resource: str, divisor: str, resources: dict[str, dict[str, str]], text: str
) -> None:
    reference = pod_types.ResourceReference(resource=resource, divisor=divisor)
    assert downward_fields.resource(reference, container(**resources), FACTS) == text


@pytest.mark.parametrize("resource", ["limits", "limits.", "usage.cpu"])
def test_unknown_resource_is_refused(resource: str) -> None:
    reference = pod_types.ResourceReference(resource=resource)
    with pytest.raises(errors.InputsNotReady, match="unsupported container resource"):
        downward_fields.resource(reference, container(), FACTS)
