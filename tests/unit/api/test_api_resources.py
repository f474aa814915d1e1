"""URLs and names of resources, as an API server has them."""

import pytest

from kilnwork.api import api_resources, kinds


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        (api_resources.PODS, "a", "/api/v1/namespaces/a/pods"),
        (api_resources.PODS, None, "/api/v1/pods"),
        (api_resources.NODES, "a", "/api/v1/nodes"),
        (api_resources.LEASES, "a", "/apis/coordination.k8s.io/v1/namespaces/a/leases"),
        (kinds.TASKS, None, "/apis/kilnwork.dev/v1alpha1/tasks"),
    ],
)
def test_base_path_of_a_resource(
    kind: api_resources.Resource, namespace: str | None, path: str
) -> None:
    assert kind.base(namespace) == path


def test_a_resource_of_the_core_group_is_named_without_a_group() -> None:
    assert (api_resources.PODS.api_version, api_resources.PODS.qualified) == ("v1", "pods")


def test_a_resource_of_another_group_is_named_with_it() -> None:
    assert api_resources.LEASES.api_version == "coordination.k8s.io/v1"
    assert api_resources.LEASES.qualified == "leases.coordination.k8s.io"


def test_reviews_are_created_and_never_listed() -> None:
    assert api_resources.TOKEN_REVIEWS not in api_resources.BUILT_IN
    assert api_resources.TOKEN_REVIEWS.plural == "tokenreviews"
