"""URLs and names of resources, as an API server has them."""

import pytest

from kilnwork.api import kinds, resource


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        (resource.PODS, "a", "/api/v1/namespaces/a/pods"),
        (resource.PODS, None, "/api/v1/pods"),
        (resource.NODES, "a", "/api/v1/nodes"),
        (resource.LEASES, "a", "/apis/coordination.k8s.io/v1/namespaces/a/leases"),
        (kinds.TASKS, None, "/apis/kilnwork.dev/v1alpha1/tasks"),
    ],
)
def test_base_path_of_a_resource(kind: resource.Resource, namespace: str | None, path: str) -> None:
    assert kind.base(namespace) == path


def test_a_resource_of_the_core_group_is_named_without_a_group() -> None:
    assert (resource.PODS.api_version, resource.PODS.qualified) == ("v1", "pods")


def test_a_resource_of_another_group_is_named_with_it() -> None:
    assert resource.LEASES.api_version == "coordination.k8s.io/v1"
    assert resource.LEASES.qualified == "leases.coordination.k8s.io"


def test_reviews_are_created_and_never_listed() -> None:
    assert resource.TOKEN_REVIEWS not in resource.BUILT_IN
    assert resource.TOKEN_REVIEWS.plural == "tokenreviews"
