"""Rights of the manager, of executors and of drivers, and where they apply."""

from typing import Any

import pytest

from kilnwork.cli.installation import rights, settings


def by_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


@pytest.mark.parametrize(
    ("name", "group", "plural"),
    [
        ("books.example.com", "example.com", "books"),
        ("*", "", "*"),
        ("configmaps", "", "configmaps"),
    ],
)
def test_kind_of_objects_becomes_a_right_on_it(name: str, group: str, plural: str) -> None:
    (found,) = rights.of_objects(settings.AllowedObjects(kinds=(name,)))
    assert (found.group, found.resources) == (group, (plural,))
    assert {"create", "delete", "watch"} <= set(found.verbs)


def test_impersonation_is_a_right_only_if_it_was_chosen() -> None:
    assert list(rights.of_objects(settings.AllowedObjects())) == []
    (found,) = rights.of_objects(settings.AllowedObjects(impersonate=True))
    assert (found.resources, found.verbs) == (("serviceaccounts",), ("impersonate",))


def test_manager_limited_to_namespaces_has_rights_only_there() -> None:
    everywhere = list(rights.manager_account("k"))
    some = list(rights.manager_account("k", only_in=("a", "b")))
    places = {one["metadata"]["namespace"] for one in by_kind(some, "Role")}
    assert places == {"a", "b", "k"}
    assert [one["metadata"]["namespace"] for one in by_kind(everywhere, "Role")] == ["k"]
    (wide,), (narrow,) = by_kind(everywhere, "ClusterRole"), by_kind(some, "ClusterRole")
    assert len(narrow["rules"]) < len(wide["rules"])


def test_nodes_are_read_only_for_ponds() -> None:
    def reads_nodes(*, ponds: bool) -> bool:
        (role,) = by_kind(list(rights.manager_account("k", ponds=ponds)), "ClusterRole")
        return any("nodes" in rule.get("resources", ()) for rule in role["rules"])

    assert reads_nodes(ponds=True)
    assert not reads_nodes(ponds=False)


def test_executor_limited_to_namespaces_reads_secrets_only_there() -> None:
    found = list(rights.executor_account("k", only_in=("a",)))
    (role,) = by_kind(found, "ClusterRole")
    assert not any("secrets" in rule.get("resources", ()) for rule in role["rules"])
    assert [one["metadata"]["namespace"] for one in by_kind(found, "Role")] == ["a"]
    (wide,) = by_kind(list(rights.executor_account("k")), "ClusterRole")
    assert any("secrets" in rule.get("resources", ()) for rule in wide["rules"])


def test_drivers_and_readers_of_a_namespace_have_accounts_and_bindings() -> None:
    found = list(rights.drivers("a"))
    assert {one["metadata"]["namespace"] for one in found} == {"a"}
    names = [one["metadata"]["name"] for one in by_kind(found, "ServiceAccount")]
    assert names == [rights.DRIVER, rights.READER]
    bound = [one["roleRef"]["kind"] for one in by_kind(found, "RoleBinding")]
    assert bound == ["ClusterRole", "ClusterRole"]


def test_subresource_is_written_after_its_group() -> None:
    assert rights._qualified("tasks/status", ".kilnwork.dev") == "tasks.kilnwork.dev/status"
    assert rights._qualified("pods", "") == "pods"
