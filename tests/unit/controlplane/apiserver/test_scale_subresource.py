"""An object of a custom kind seen as autoscaling/v1 Scale."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import builtin, scale_subresource, statuses

KIND = api_resources.Resource(group="x.dev", version="v1", kind="X", plural="xs", singular="x")
PATHS = builtin.ScalePaths(spec=".spec.n", status=".status.n", selector=".status.labels")
SERVED = builtin.ServedResource(resource=KIND, schema={}, scale=PATHS)


def scale_with(spec: Any, status: Any = None) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "ns", "uid": "u", "labels": {"a": "b"}}
    return scale_subresource.scale_of(
        SERVED, {"metadata": metadata, "spec": spec, "status": status}
    )


def test_replica_fields_are_those_of_the_definition() -> None:
    found = scale_with({"n": 3}, {"n": 2, "labels": "a=b"})
    assert found == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": "a=b"},
    }


def test_missing_status_replicas_are_zero() -> None:
    assert scale_with({"n": 0})["spec"] == {"replicas": 0}
    assert scale_with({"n": 1})["status"] == {"replicas": 0}


@pytest.mark.parametrize("spec", [{}, {"n": None}, None])
def test_object_without_replicas_has_no_scale(spec: Any) -> None:
    with pytest.raises(statuses.StatusError, match=r"\.spec\.n") as refused:
        scale_with(spec)
    assert refused.value.code == 500


def test_kind_without_scale_subresource_is_not_found() -> None:
    plain = builtin.ServedResource(resource=KIND, schema={})
    with pytest.raises(statuses.StatusError) as refused:
        scale_subresource.scale_of(plain, {"metadata": {}, "spec": {"n": 1}})
    assert refused.value.code == 404
