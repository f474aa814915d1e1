"""URLs open the store that they name, or are refused with a hint."""

from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.stores import local, store_urls


def test_file_url_opens_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "two words"
    store = store_urls.open_store(f"file://{tmp_path}/two%20words")
    assert isinstance(store, local.LocalStore)
    store.put("a", b"content")
    assert (directory / "a").read_bytes() == b"content"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "names no store"),
        ("file:relative", "names no store"),
        ("file://host/directory", "names no store"),
        ("s3:///bucket", "names no store"),
        ("kiln:", "names no store"),
        ("kiln:default/job", "run it in a slot of a worker"),
    ],
)
def test_url_without_store_is_refused(url: str, reason: str) -> None:
    with pytest.raises(errors.StoreRefused, match=reason):
        store_urls.open_store(url)


@pytest.mark.parametrize(
    ("url", "names", "expected"),
    [
        ("file:///data", ("job",), "file:///data/job"),
        ("file:///data/", ("job",), "file:///data/job"),
        ("kiln:", ("default", "job"), "kiln:default/job"),
        ("kiln:default", ("job",), "kiln:default/job"),
    ],
)
def test_inside_joins_names_with_one_slash(url: str, names: tuple[str, ...], expected: str) -> None:
    assert store_urls.url_inside(url, *names) == expected


def test_inside_refuses_invalid_names() -> None:
    with pytest.raises(errors.BadKey):
        store_urls.url_inside("file:///data", "..")
