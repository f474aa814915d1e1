"""The table of what is served: complete, and found by path."""

from kilnwork.api import api_resources, kinds
from support import served_kinds


def test_every_resource_is_served_once() -> None:
    assert sorted(s.resource.qualified for s in served_kinds.SERVED) == sorted(
        r.qualified for r in kinds.ALL
    )


def test_resource_is_found_by_group_version_and_plural() -> None:
    found = served_kinds.find("kilnwork.dev", "v1alpha1", "tasks")
    assert found is served_kinds.kind_of(kinds.TASKS)
    assert served_kinds.find("kilnwork.dev", "v1", "tasks") is None
    assert served_kinds.find("", "v1", "tasks") is None


def test_our_kinds_are_custom_with_status_of_their_definitions() -> None:
    for kind in kinds.OURS:
        served = served_kinds.kind_of(kind)
        assert served.custom
        assert served.status_subresource == (kind != kinds.TASK_OBJECTS)
    assert served_kinds.kind_of(kinds.TASKS).selectable == ("spec.clusterName", "status.state")


def test_subresource_is_found_by_name() -> None:
    token = served_kinds.kind_of(api_resources.SERVICE_ACCOUNTS).subresource("token")
    assert token is not None
    assert token.kind == "TokenRequest"
    assert served_kinds.kind_of(api_resources.PODS).subresource("nothing") is None
