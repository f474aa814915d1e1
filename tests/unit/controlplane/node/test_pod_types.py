"""The parts of a Pod that the node reads."""

from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.node import pod_types

SPEC = {
    "initContainers": [
        {"name": "init", "image": "i"},
        {"name": "side", "image": "i", "restartPolicy": "Always"},
    ],
    "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
    "ephemeralContainers": [{"name": "debug", "image": "i"}],
}


def pod(
    *, metadata: dict[str, Any] | None = None, status: Any = None, **spec: Any
) -> pod_types.Pod:
    about = {"name": "p", "namespace": "ns", "uid": "u", **(metadata or {})}
    obj = {"metadata": about, "spec": SPEC | spec, "status": status or {}}
    return msgspec.convert(obj, pod_types.Pod)


def test_containers_start_in_order_without_ephemeral_ones() -> None:
    assert [c.name for c in pod().all_containers] == ["init", "side", "a", "b"]
    assert [c.name for c in pod().all_containers if c.sidecar] == ["side"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("side", "spec.initContainers[1]"),
        ("b", "spec.containers[1]"),
        ("debug", "spec.ephemeralContainers[0]"),
    ],
)
def test_every_container_has_its_path(name: str, path: str) -> None:
    found = pod().container(name)
    assert found is not None
    assert pod().path(found) == path
    assert pod().container("none") is None


def test_container_status_is_found_in_every_list() -> None:
    found = {"name": "debug", "ready": False}
    status = {"containerStatuses": [{"name": "a"}], "ephemeralContainerStatuses": [found]}
    assert pod(status=status).shown("debug") == found
    assert pod(status=status).shown("b") == {}


def test_path_is_mounted_if_all_containers_mount_it() -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/data/"}]}
    both = [c | mount for c in SPEC["containers"]]
    assert pod(initContainers=[], containers=both).mounts("/data")
    assert not pod(initContainers=[], containers=[both[0], SPEC["containers"][1]]).mounts("/data")


@pytest.mark.parametrize(
    ("phase", "final"),
    [(None, False), ("Running", False), ("Succeeded", True), ("Failed", True)],
)
def test_two_phases_are_final(phase: str | None, *, final: bool) -> None:
    found = pod(status={"phase": phase})
    assert (found.phase, found.final) == (phase or "Pending", final)


@pytest.mark.parametrize(
    ("asked", "own", "grace_s"), [(None, None, 30), (None, 5, 5), (0, 5, 0), (9, None, 9)]
)
def test_deletion_grace_period_overrides_that_of_the_spec(
    asked: int | None, own: int | None, grace_s: float
) -> None:
    metadata = {} if asked is None else {"deletionGracePeriodSeconds": asked}
    assert pod(metadata=metadata, terminationGracePeriodSeconds=own).grace_s == grace_s


@pytest.mark.parametrize(
    ("spec", "uses"),
    [
        ({}, False),
        ({"serviceAccountName": "sa"}, True),
        ({"serviceAccountName": "sa", "automountServiceAccountToken": False}, False),
    ],
)
def test_automount_of_account_can_be_disabled(spec: dict[str, Any], *, uses: bool) -> None:
    assert pod(**spec).uses_account is uses


def test_zero_in_a_probe_means_the_default() -> None:
    zeros = ("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    assert msgspec.convert(dict.fromkeys(zeros, 0), pod_types.Probe) == pod_types.Probe()
    assert msgspec.convert({"periodSeconds": 1}, pod_types.Probe).period_seconds == 1
