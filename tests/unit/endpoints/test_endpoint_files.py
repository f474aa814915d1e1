"""The file that says which process serves a directory."""

import stat
from pathlib import Path

import pytest

from kilnwork.endpoints import endpoint_files

SERVER = endpoint_files.Endpoints(
    version="1", pid=7, kubernetes="https://x", channel=endpoint_files.Channel("/tmp/s")
)


def test_written_file_is_read_back_and_private(tmp_path: Path) -> None:
    endpoint_files.write(tmp_path, SERVER)
    assert endpoint_files.read(tmp_path) == SERVER
    assert stat.S_IMODE((tmp_path / endpoint_files.FILE).stat().st_mode) == 0o600
    assert endpoint_files.socket(tmp_path) == "/tmp/s"


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"version": "1"}'])
def test_directory_without_a_file_has_no_endpoints(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / endpoint_files.FILE).write_bytes(content)
    assert endpoint_files.read(tmp_path) is None
    assert endpoint_files.socket(tmp_path) == ""


def test_server_has_a_url_of_kubernetes() -> None:
    assert SERVER.is_server
    assert not endpoint_files.Endpoints(version="1", pid=7, http="http://x").is_server


def test_token_is_read_without_its_line_end(tmp_path: Path) -> None:
    assert endpoint_files.token(tmp_path) == ""
    (tmp_path / endpoint_files.TOKEN).write_text("secret\n")
    assert endpoint_files.token(tmp_path) == "secret"
