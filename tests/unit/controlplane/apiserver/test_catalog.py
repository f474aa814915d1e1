"""What is served: built-in kinds and those that are defined."""

import msgspec
import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import builtin, catalog


def served(version: str, *, storage: str = "") -> builtin.ServedResource:
    what = api_resources.Resource(
        group="x.dev", version=version, kind="X", plural="xs", singular="x", namespaced=True
    )
    return builtin.ServedResource(resource=what, schema={}, storage_version=storage)


def test_built_in_kinds_are_found_by_path_and_by_kind() -> None:
    kinds = catalog.Catalog()
    pods = kinds.find("", "v1", "pods")
    assert pods is not None
    assert pods.resource == api_resources.PODS
    assert (
        kinds.find_kind("v1", "Pod")
        is pods
        is kinds.find_stored("pods")
        is kinds.of(api_resources.PODS)
    )


def test_definition_is_served_until_forgotten() -> None:
    kinds = catalog.Catalog()
    kinds.define("xs.x.dev", [served("v1")])
    assert kinds.find("x.dev", "v1", "xs") == served("v1")
    kinds.forget("xs.x.dev")
    assert kinds.find("x.dev", "v1", "xs") is None
    with pytest.raises(KeyError):
        kinds.of(served("v1").resource)


def test_revision_increases_only_with_changes() -> None:
    kinds = catalog.Catalog()
    before = kinds.revision
    kinds.define("xs.x.dev", [served("v1")])
    kinds.define("xs.x.dev", [served("v1")])
    assert kinds.revision == before + 1
    kinds.forget("other")
    assert kinds.revision == before + 1
    kinds.forget("xs.x.dev")
    assert kinds.revision == before + 2


def test_several_versions_are_one_stored_kind() -> None:
    kinds = catalog.Catalog()
    versions = [served(v, storage="v2") for v in ("v1", "v2")]
    kinds.define("xs.x.dev", versions)
    assert [one for one in kinds.stored_kinds() if one.custom] == [versions[1]]
    assert kinds.find_stored("xs.x.dev") == versions[1]


def test_storage_version_need_not_be_served() -> None:
    kinds = catalog.Catalog()
    only = msgspec.structs.replace(served("v1"), storage_version="v0")
    kinds.define("xs.x.dev", [only])
    assert kinds.find_stored("xs.x.dev") == only
