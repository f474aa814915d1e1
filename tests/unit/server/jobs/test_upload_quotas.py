"""Limits of the space in `/files` per user."""

from pathlib import Path

import pytest

from kilnwork.data.stores import local
from kilnwork.server import errors
from kilnwork.server.jobs import input_writer, settings, upload_quotas, upload_storage

FIRST = "00000000-0000-0000-0000-000000000001"
SECOND = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def store(tmp_path: Path) -> local.LocalStore:
    return local.LocalStore(tmp_path)


@pytest.fixture
def kept(store: local.LocalStore) -> upload_storage.Uploads:
    return upload_storage.Uploads(store)


def _quotas(
    store: local.LocalStore,
    *,
    files: int = 1000,
    most_bytes: int | None = 100,
    load: bool = True,
) -> upload_quotas.Quotas:
    chosen = settings.JobsApiSettings(files_per_user=files, files_bytes_per_user=most_bytes)
    found = upload_quotas.Quotas(
        upload_storage.Uploads(store), chosen, input_writer.DiskRoom(store)
    )
    if load:
        found.load()
    return found


def _begin(
    kept: upload_storage.Uploads,
    name: str,
    *,
    user: str = "ann",
    length: int | None = None,
    complete: bool = False,
) -> upload_storage.StoredUpload:
    state = upload_storage.UploadState(created=1.0, user=user, length=length, complete=complete)
    return kept.begin("default", name, state)


def test_load_reads_the_store_once(store: local.LocalStore, kept: upload_storage.Uploads) -> None:
    _begin(kept, FIRST, length=60)
    found = _quotas(store, load=False)
    ready = [found.ready]
    found.load()
    assert [*ready, found.ready] == [False, True]
    _begin(kept, SECOND, length=40)
    found.load()
    assert found.remaining_bytes("ann", None, offset=0, size=0) == 40


def test_only_incomplete_uploads_count_against_number_limit(
    store: local.LocalStore,
    kept: upload_storage.Uploads,
) -> None:
    found = _quotas(store, files=1)
    found.record_upload(_begin(kept, FIRST, complete=True))
    found.check_count("ann")
    found.record_upload(_begin(kept, SECOND))
    with pytest.raises(errors.TooManyRequests, match="1 uploads of yours") as caught:
        found.check_count("ann")
    assert caught.value.headers == ((b"retry-after", b"60"),)
    found.check_count("bob")


@pytest.mark.parametrize(("size", "fits"), [(0, True), (30, True), (31, False)])
def test_upload_may_use_bytes_left_by_others(
    store: local.LocalStore, kept: upload_storage.Uploads, size: int, *, fits: bool
) -> None:
    found = _quotas(store)
    found.record_upload(_begin(kept, FIRST, length=60))
    found.record_upload(_begin(kept, SECOND, length=90, user="bob"))
    if fits:
        assert found.remaining_bytes("ann", None, offset=10, size=size) == 30
    else:
        with pytest.raises(errors.InsufficientStorage, match="101 bytes, and 100"):
            found.remaining_bytes("ann", None, offset=10, size=size)


def test_upload_does_not_count_against_itself(
    store: local.LocalStore, kept: upload_storage.Uploads
) -> None:
    found = _quotas(store)
    found.record_upload(_begin(kept, FIRST, length=60))
    assert found.remaining_bytes("ann", FIRST, offset=20, size=80) == 80


@pytest.mark.parametrize(("offset", "length", "left"), [(20, 60, 40), (70, 60, 30), (5, None, 95)])
def test_upload_counts_with_larger_of_length_and_offset(
    store: local.LocalStore,
    kept: upload_storage.Uploads,
    offset: int,
    length: int | None,
    left: int,
) -> None:
    found = _quotas(store)
    found.record_upload(_begin(kept, FIRST, length=length)._replace(offset=offset))
    assert found.remaining_bytes("ann", None, offset=0, size=0) == left


def test_removed_upload_frees_its_quota(
    store: local.LocalStore, kept: upload_storage.Uploads
) -> None:
    found = _quotas(store)
    first, second = _begin(kept, FIRST, length=60), _begin(kept, SECOND, length=30)
    found.record_upload(first)
    found.record_upload(second)
    kept.remove(first)
    found.forget()
    assert found.remaining_bytes("ann", None, offset=0, size=0) == 70
    found.drop_upload(second)
    assert found.remaining_bytes("ann", None, offset=0, size=0) == 100


def test_default_quota_is_three_quarters_of_free_disk(
    store: local.LocalStore, kept: upload_storage.Uploads
) -> None:
    _begin(kept, FIRST)
    found = _quotas(store, most_bytes=None)
    free = input_writer.DiskRoom(store).free()
    left = found.remaining_bytes("ann", None, offset=0, size=0)
    assert free is not None
    assert left is not None
    assert left == pytest.approx(free * 0.75, rel=0.005)


def test_any_size_fits_before_directory_exists(tmp_path: Path) -> None:
    found = _quotas(local.LocalStore(tmp_path / "none"), most_bytes=None)
    assert found.remaining_bytes("ann", None, offset=0, size=1 << 60) is None


def test_uploads_beyond_the_quota_leave_no_bytes(
    store: local.LocalStore, kept: upload_storage.Uploads
) -> None:
    found = _quotas(store)
    found.record_upload(_begin(kept, FIRST, length=130))
    assert found.remaining_bytes("ann", None, offset=5, size=0) == 0
    with pytest.raises(errors.InsufficientStorage, match="136 bytes, and 100"):
        found.remaining_bytes("ann", None, offset=5, size=1)


def test_default_quota_counts_bytes_that_the_user_has_already(
    store: local.LocalStore, kept: upload_storage.Uploads
) -> None:
    free = input_writer.DiskRoom(store).free()
    assert free is not None
    found = _quotas(store, most_bytes=None)
    found.record_upload(_begin(kept, FIRST, length=free))
    left = found.remaining_bytes("ann", None, offset=0, size=0)
    assert left == pytest.approx(free * 0.5, rel=0.005)  # 75 % of twice the space, less what it has
    left = found.remaining_bytes("ann", FIRST, offset=free, size=0)
    assert left == pytest.approx(free * 0.5, rel=0.005)


class FullDisk(input_writer.DiskRoom):
    """A disk with less free space than is kept for the server itself."""

    def free(self) -> int:
        return -1000


def test_full_disk_leaves_no_bytes(store: local.LocalStore, kept: upload_storage.Uploads) -> None:
    chosen = settings.JobsApiSettings(files_bytes_per_user=None)
    found = upload_quotas.Quotas(kept, chosen, FullDisk(store))
    found.load()
    assert found.remaining_bytes("ann", None, offset=0, size=0) == 0
    found.record_upload(_begin(kept, FIRST, length=10_000, user="bob"))
    with pytest.raises(errors.InsufficientStorage, match="1 bytes, and 0 are the most"):
        found.remaining_bytes("ann", None, offset=0, size=1)


def test_deletion_by_a_user_without_uploads_changes_nothing(
    store: local.LocalStore, kept: upload_storage.Uploads
) -> None:
    found = _quotas(store)
    found.drop_upload(_begin(kept, FIRST, length=60))
    assert found.remaining_bytes("ann", None, offset=0, size=0) == 100
