"""The blobs of a claim's task are stored in the manager's own directory."""

import hashlib
from pathlib import Path

import pytest

from kilnwork.controllers.task_claim import executor_adapter
from kilnwork.executors import external


def test_blob_is_stored_in_the_directory_of_its_namespace(tmp_path: Path) -> None:
    file = tmp_path / "result"
    file.write_bytes(b"content")
    store = executor_adapter.BlobDirectory(tmp_path / "blobs", "quant")
    store.put(hashlib.sha256(b"content").digest(), file)
    store.close()
    kept = [one for one in (tmp_path / "blobs" / "quant").rglob("*") if one.is_file()]
    assert b"content" in [one.read_bytes() for one in kept]
    assert hashlib.sha256(b"content").hexdigest() in "".join(str(one) for one in kept)


def test_a_manager_without_blobs_loses_the_attempt(tmp_path: Path) -> None:
    with pytest.raises(external.Lost, match="keeps no blobs"):
        executor_adapter.BlobDirectory(None, "quant").put(b"", tmp_path / "result")
