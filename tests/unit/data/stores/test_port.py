"""Keys that every store accepts, and functions for any store."""

from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.stores import local, port


@pytest.fixture
def store(tmp_path: Path) -> local.LocalStore:
    return local.LocalStore(tmp_path / "files")


@pytest.mark.parametrize(
    "key", ["a", "a/b-c/_d", "A.b=c+d@e~f", "x" * 200, "/".join(["x" * 127] * 8) + "y"]
)
def test_key_of_names_and_slashes_is_accepted(key: str) -> None:
    assert port.check_key(key) == key


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a/", "a//b", "..", ".a", "a/../b", "-a", "a b", "é", "x" * 201, "a/" * 512 + "a"],
)
def test_key_invalid_in_some_store_is_refused(key: str) -> None:
    with pytest.raises(errors.BadKey, match="1024 characters at most"):
        port.check_key(key)


@pytest.mark.parametrize("prefix", ["", "a/", "a/b/"])
def test_directory_prefix_is_empty_or_ends_with_slash(prefix: str) -> None:
    assert port.check_directory(prefix) == prefix


@pytest.mark.parametrize("prefix", ["a", "/", "a//"])
def test_invalid_directory_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(errors.BadKey):
        port.check_directory(prefix)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "-", "a/."])
def test_prefix_may_end_within_a_name(prefix: str) -> None:
    assert port.check_prefix(prefix) == prefix


def test_prefix_below_invalid_key_is_refused() -> None:
    with pytest.raises(errors.BadKey):
        port.check_prefix("../a")


def test_read_all_refuses_object_above_limit(store: local.LocalStore) -> None:
    store.put("a", b"12345")
    assert port.read_all(store, "a", most=5) == b"12345"
    with pytest.raises(errors.StoreRefused, match="a has 5 bytes: more than 4"):
        port.read_all(store, "a", most=4)


def test_clear_deletes_only_keys_with_prefix(store: local.LocalStore) -> None:
    for key in ("a/1", "a/2", "ab"):
        store.put(key, b"")
    assert port.clear(store, "a/") == 2
    assert [facts.key for facts in store.list()] == ["ab"]
    assert port.clear(store, "a/") == 0
