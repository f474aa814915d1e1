"""Which kinds tasks may make."""

import pytest

from kilnwork.api import api_resources
from kilnwork.executors import custom_resource


def kind(plural: str, group: str) -> api_resources.Resource:
    return api_resources.Resource(group=group, version="v1", kind="K", plural=plural, singular="k")


@pytest.mark.parametrize(
    ("names", "plural", "group", "allowed"),
    [
        (["books.my.domain"], "books", "my.domain", True),
        (["books.my.domain"], "shelves", "my.domain", False),
        (["books.my.domain"], "books", "other.domain", False),
        (["*.my.domain"], "shelves", "my.domain", True),
        (["*.my.domain"], "shelves", "not.my.domain", False),
        (["configmaps"], "configmaps", "", True),
        (["jobs.batch"], "jobs", "batch", True),
        (["*"], "books", "my.domain", True),
        (["*"], "workflows", "argoproj.io", True),
        (["*"], "configmaps", "", False),
        (["*"], "jobs", "batch", False),
        (["*"], "roles", "rbac.authorization.k8s.io", False),
        (["*"], "tasks", "kilnwork.dev", False),
        (["*", "jobs.batch"], "jobs", "batch", True),
        ([], "books", "my.domain", False),
    ],
)
def test_a_kind_is_allowed_by_its_name_or_its_group(
    names: list[str],
    plural: str,
    group: str,
    allowed: bool,  # noqa: FBT001
) -> None:
    kinds = custom_resource.AllowedKinds(names)
    assert kinds.allows(kind(plural, group)) is allowed


@pytest.mark.parametrize(
    ("names", "group", "may"),
    [(["books.my.domain"], "my.domain", True), (["*"], "my.domain", True), (["*"], "batch", False)],
)
def test_a_kind_that_is_not_there_is_waited_for_only_if_it_may_be_allowed(
    names: list[str],
    group: str,
    may: bool,  # noqa: FBT001
) -> None:
    assert custom_resource.AllowedKinds(names).may_allow(group) is may
