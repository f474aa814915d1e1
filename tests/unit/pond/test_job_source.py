"""Whom the source for files of file jobs trusts."""

import socket
from pathlib import Path

import pytest

from kilnwork.api import file_job_uris
from kilnwork.data import errors
from kilnwork.data.pond import origins
from kilnwork.pond import job_source, settings


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_manager_without_usable_ca_gets_no_request(tmp_path: Path, content: str | None) -> None:
    ca = tmp_path / "ca.crt"
    if content is not None:
        ca.write_text(content)
    listening = socket.create_server(("127.0.0.1", 0))
    given = settings.AgentSettings(
        manager=f"https://127.0.0.1:{listening.getsockname()[1]}",
        namespace="ns",
        pond="p",
        node="n",
        token_file=tmp_path / "token",
        root=tmp_path,
        ca_file=ca,
    )
    source = job_source.FileJobSource("s", file_job_uris.JobDirectory("j", "output"), given)
    with (
        listening,
        pytest.raises(errors.SourceUnreachable, match="the manager's CA in KILN_CA_FILE"),
    ):
        source.list(origins.Selection())
