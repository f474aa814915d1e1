"""Pods fit nodes by the rules of the scheduler's filters."""

import decimal
from typing import Any

import pytest

from kilnwork.api import node_fit


def node(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": {"disk": "ssd", "cores": "8"}},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"pods": "2", "cpu": "4", "memory": "1Gi"},
        },
    }


def pod(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}], **spec}}


def term(operator: str, key: str, *values: str) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": list(values)}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("on", "of", "why"),
    [
        (node(), pod(), ""),
        (node(), pod("4"), ""),
        (node(), pod("4.1"), "Insufficient cpu"),
        (node(unschedulable=True), pod(), "node(s) were unschedulable"),
        (node(taints=[TAINT]), pod(), "node(s) had untolerated taint {gpu: yes}"),
        (node(taints=[TAINT | {"effect": "PreferNoSchedule"}]), pod(), ""),
        (node(taints=[TAINT]), pod(tolerations=[{"key": "gpu", "operator": "Exists"}]), ""),
        (node(), pod(nodeSelector={"disk": "hdd"}), "node(s) didn't match Pod's node affinity"),
        (node(), pod(affinity=term("In", "disk", "ssd")), ""),
        (node(), pod(affinity=term("Gt", "cores", "8")), "node(s) didn't match"),
        (node(), pod(affinity=term("Gt", "cores", "7")), ""),
        (node(), pod(affinity=term("Near", "disk")), "node(s) didn't match"),
    ],
)
def test_misfit_is_described(on: dict[str, Any], of: dict[str, Any], why: str) -> None:
    found = node_fit.find_misfit(on, of, {})
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_pods_of_the_node_use_resources() -> None:
    used = {"cpu": decimal.Decimal("3.5"), "pods": decimal.Decimal(2)}
    assert node_fit.find_misfit(node(), pod(), used) == "Too many pods, Insufficient cpu"


def test_node_that_is_not_ready_fits_no_pod() -> None:
    broken = node() | {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert node_fit.find_misfit(broken, pod(), {}) == "node(s) were not ready"


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0.0),
        ([{"operator": "Exists"}], None),
        ([{"key": "down", "operator": "Exists", "tolerationSeconds": 30}], 30.0),
        ([{"key": "down", "operator": "Exists", "tolerationSeconds": -1}], 0.0),
        ([{"key": "down", "value": "x"}], 0.0),
    ],
)
def test_tolerated_seconds_on_a_tainted_node(
    tolerations: list[dict[str, Any]], seconds: float | None
) -> None:
    down = node(taints=[{"key": "down", "effect": "NoExecute"}])
    assert node_fit.stays_s(down, pod(tolerations=tolerations)) == seconds


def test_requests_of_init_containers_and_sidecars() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"limits": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("5")],
        "containers": [container("2"), container("1")],
        "overhead": {"cpu": "250m"},
    }
    assert node_fit.requests(spec) == {"cpu": decimal.Decimal("6.25")}
