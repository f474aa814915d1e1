"""A disk that is full for a while: the server reports it, loses no task, and continues
afterwards.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import small_disks, waiting
from support import up_server as up_support

pytestmark = pytest.mark.faults


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_support.UpServer]:
    with small_disks.mounted(tmp_path) as disk:
        made = up_support.UpServer(disk / "data", workdir=tmp_path)
        made.log = tmp_path / "server.log"
        try:
            made.start()
            yield made
        finally:
            made.stop()


def readiness(server: up_support.UpServer) -> tuple[int, str]:
    """Return the status and text of /readyz?verbose."""
    http = json.loads((server.data / "endpoints.json").read_text())["http"]
    try:
        with urllib.request.urlopen(f"{http}/readyz?verbose", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def journal_trouble(server: up_support.UpServer) -> str:
    """Return what a 503 of /readyz says of a journal that cannot be written; "" if it can be."""
    status, text = readiness(server)
    return text if status == 503 and "its journal" in text else ""


def test_server_reports_a_full_disk_and_recovers(server: up_support.UpServer) -> None:
    gate = server.workdir / "gate"
    script = f"while ! test -e {gate}; do sleep 0.05; done"
    server.kiln("run", "--name", "t", "--", "sh", "-c", script)
    waiting.wait_until(
        lambda: server.get("tasks", "t").get("status", {}).get("state") == "Running", what="it runs"
    )
    ballast = server.data.parent / "ballast"
    small_disks.fill(ballast)
    gate.touch()
    found = waiting.wait_until(lambda: journal_trouble(server), what="readyz reports the journal")
    assert "cannot write its journal" in found
    assert server.kiln("run", "--", "true", check=False).returncode == 1
    why = server.kiln("why", "t").stdout
    assert " The server is not ready: dispatcher not ready: cannot write its journal" in why
    ballast.unlink()
    server.kiln("wait", "t", "--for", "state=Success", "--timeout", "30s")
    waiting.wait_until(lambda: readiness(server)[0] == 200, what="ready again")
    server.kiln("run", "--name", "u", "--watch", "--", "true")
