"""A large result of a Pod, where the manager's directory of blobs is to be seen."""

import hashlib
from pathlib import Path

from kilnwork.api import attempts
from kilnwork.worker import result_file, sidecar_result_blob, sidecar_settings

CONTENT = b'"' + b"x" * (2 << 20) + b'"'


def given(directory: Path) -> sidecar_settings.SidecarSettings:
    return sidecar_settings.SidecarSettings(
        directory=directory,
        token_file=directory / "token",
        attempt=("018f3a5e-0000-7000-8000-000000000001", 1, 1),
        namespace="ns",
        pod="p",
        cluster="",
        output_type="json",
        channel="unix:/none",
        ca="",
        blobs=directory / "blobs",
        grace_s=1.0,
        message_bytes=1024,
    )


def test_blob_is_written_to_the_shared_directory(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(CONTENT)
    with result_file.OutputFile(path, output_type="json") as found:
        payload = sidecar_result_blob.store_result(given(tmp_path), found, until=0.0)
    digest = hashlib.sha256(CONTENT).digest()
    assert payload == attempts.Payload("application/json", b"", digest, len(CONTENT))
    (blob,) = [each for each in (tmp_path / "blobs" / "ns").rglob("*") if each.is_file()]
    assert blob.name.endswith(digest.hex()[2:])
    assert blob.read_bytes() == CONTENT


def test_equal_results_share_one_blob(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(CONTENT)
    for _ in range(2):
        with result_file.OutputFile(path, output_type="bytes") as found:
            payload = sidecar_result_blob.store_result(given(tmp_path), found, until=0.0)
        assert payload.media_type == "application/octet-stream"
    assert len([each for each in (tmp_path / "blobs").rglob("*") if each.is_file()]) == 1
