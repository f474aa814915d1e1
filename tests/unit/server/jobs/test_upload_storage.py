"""Stored uploads of `/files`."""

from pathlib import Path

import pytest

from kilnwork.data.stores import local
from kilnwork.server import errors
from kilnwork.server.jobs import upload_storage

FIRST = "00000000-0000-0000-0000-000000000001"
SECOND = "00000000-0000-0000-0000-000000000002"
STATE = upload_storage.UploadState(created=5.0, user="ann", length=3)


@pytest.fixture
def kept(tmp_path: Path) -> upload_storage.Uploads:
    return upload_storage.Uploads(local.LocalStore(tmp_path))


def _append(upload: upload_storage.StoredUpload, data: bytes, *, offset: int = 0) -> None:
    with upload.bytes.open_stretch(offset) as writer:
        writer.write(data)
        writer.commit()


def test_new_upload_is_found_with_its_state(kept: upload_storage.Uploads) -> None:
    begun = kept.begin("a", FIRST, STATE)
    found = kept.find("a", FIRST)
    assert found is not None
    assert (found.state, found.offset, found.touched) == (STATE, 0, 5.0)
    assert found.etag == begun.etag != ""


@pytest.mark.parametrize(
    ("namespace", "ref"), [("b", FIRST), ("a", SECOND), ("a", "x"), ("a", f"../a/{FIRST}")]
)
def test_upload_is_not_found_by_other_namespace_or_id(
    kept: upload_storage.Uploads, namespace: str, ref: str
) -> None:
    kept.begin("a", FIRST, STATE)
    assert kept.find(namespace, ref) is None


@pytest.mark.parametrize(
    ("complete", "data", "whole"),
    [(True, b"abc", True), (False, b"abc", False), (True, b"ab", False)],
)
def test_upload_is_whole_once_complete_with_all_bytes(
    kept: upload_storage.Uploads, *, complete: bool, data: bytes, whole: bool
) -> None:
    begun = kept.begin("a", FIRST, STATE)
    _append(begun, data)
    kept.save(begun, upload_storage.UploadState(created=5.0, length=3, complete=complete))
    found = kept.find("a", FIRST)
    assert found is not None
    assert (found.offset, found.whole) == (len(data), whole)


def test_uploads_are_listed_by_namespace_and_id(kept: upload_storage.Uploads) -> None:
    for namespace, name in [("b", FIRST), ("a", SECOND), ("a", FIRST)]:
        kept.begin(namespace, name, STATE)
    assert [one.id for one in kept.list("a")] == [FIRST, SECOND]
    assert sorted((one.namespace, one.id) for one in kept.all()) == [
        ("a", FIRST),
        ("a", SECOND),
        ("b", FIRST),
    ]


def test_older_state_does_not_replace_newer_one(kept: upload_storage.Uploads) -> None:
    begun = kept.begin("a", FIRST, STATE)
    kept.save(begun, upload_storage.UploadState(created=6.0))
    with pytest.raises(errors.Conflict, match=FIRST):
        kept.save(begun, upload_storage.UploadState(created=7.0))
    found = kept.find("a", FIRST)
    assert found is not None
    assert found.state.created == 6.0


def test_removed_upload_is_not_saved(kept: upload_storage.Uploads) -> None:
    begun = kept.begin("a", FIRST, STATE)
    kept.remove(begun)
    with pytest.raises(errors.NotFound, match=FIRST):
        kept.save(begun, STATE)
    assert kept.find("a", FIRST) is None


def test_stale_uploads_are_deleted(kept: upload_storage.Uploads) -> None:
    kept.begin("a", FIRST, upload_storage.UploadState(created=9.0))
    kept.begin("b", SECOND, upload_storage.UploadState(created=10.0))
    assert kept.delete_stale(before=10.0) == 1
    assert [one.id for one in kept.all()] == [SECOND]
