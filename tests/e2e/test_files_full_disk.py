"""File jobs on a full disk: refused or failed with the reason, and repeated once there is room."""

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib import parse

import pytest

from support import small_disks, waiting
from support import up_server as up_support

DISK_MIB = 96
LINE = json.dumps({"text": "x" * 1000}).encode() + b"\n"
SPEC = {
    "mapper": {"builtin": "identity"},
    "itemsPerPart": 3000,
    "suspend": True,
    "retry": {"maxAttempts": 2, "delaySeconds": 0.1},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_support.UpServer]:
    with small_disks.mounted(tmp_path, mib=DISK_MIB) as disk:
        made = up_support.UpServer(disk / "data", workdir=tmp_path, slots=2)
        made.log = tmp_path / "server.log"
        try:
            made.start()
            yield made
        finally:
            made.stop()


def ask(
    server: up_support.UpServer,
    method: str,
    path: str,
    body: Any = None,
    *,
    chunked: bool = False,
) -> tuple[int, Any]:
    """Return status and body, decoded if it is JSON; `body` may be an iterator, sent in chunks."""
    place = parse.urlsplit(json.loads((server.data / "endpoints.json").read_text())["http"])
    token = (server.data / "token").read_text().strip()
    connection = http.client.HTTPConnection(place.netloc, timeout=20)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has said why
            connection.request(method, path, body, headers, encode_chunked=chunked)
        response = connection.getresponse()
        raw = response.read()
    finally:
        connection.close()
    decoded = response.headers["Content-Type"] in ("application/json", "application/problem+json")
    return response.status, json.loads(raw) if decoded else raw


def lines(count: int) -> Iterator[bytes]:
    """Yield lines in pieces of about 1 MB."""
    while count > 0:
        yield LINE * min(count, 1000)
        count -= 1000


def files_of(server: up_support.UpServer) -> list[Path]:
    return [
        path
        for path in (server.data / "files").rglob("*")
        if path.is_file() and path.name != ".lock"
    ]


def job(server: up_support.UpServer, name: str) -> Any:
    return ask(server, "GET", f"/jobs/{name}")[1]


def ended(server: up_support.UpServer, name: str) -> Any:
    def look() -> Any:
        found = job(server, name)
        return found if found["phase"] in ("Succeeded", "Failed", "Cancelled") else None

    return waiting.wait_until(look, what="the job is over")


def test_oversized_upload_is_refused_and_leaves_nothing(server: up_support.UpServer) -> None:
    count = DISK_MIB * 1100
    for body, chunked in ((LINE * count, False), (lines(count), True)):
        status, problem = ask(server, "POST", "/jobs", body, chunked=chunked)
        assert status == 507
        assert "room" in problem["message"]
        waiting.wait_until(lambda: not files_of(server), what="nothing is left")
    assert ask(server, "GET", "/jobs")[1] == []
    assert ask(server, "POST", "/jobs", lines(10), chunked=True)[0] == 202


def test_job_without_room_fails_and_is_redone(server: up_support.UpServer) -> None:
    content = b"".join(lines(12_000))
    where = "/jobs?" + parse.urlencode({"spec": json.dumps(SPEC)})
    status, made = ask(server, "POST", where, content)
    assert status == 202
    name = made["id"]
    ballast = server.data.parent / "ballast"
    disk = os.statvfs(server.data)
    ballast.write_bytes(bytes(disk.f_bavail * disk.f_frsize - (10 << 20)))
    assert ask(server, "POST", f"/jobs/{name}/resume")[0] == 202
    failed = ended(server, name)
    assert failed["phase"] == "Failed"
    assert "Free some room" in json.dumps(failed)
    ballast.unlink()
    assert ask(server, "POST", f"/jobs/{name}/redrive")[0] == 202
    assert ended(server, name)["phase"] == "Succeeded"
    assert ask(server, "GET", f"/jobs/{name}/results") == (200, content)
    assert not [path for path in files_of(server) if path.name.startswith(".new-")]
