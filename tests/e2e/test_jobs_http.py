"""File jobs over plain HTTP, as a program in any language uses them, on `kiln up`."""

import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from support import up_server

RECORDS = 3000
LINES = b"".join(
    b'{"id":"%d","value1":%d,"value2":2,"op":"*"}\n' % (number, number) for number in range(RECORDS)
)
RESULT = b"".join(
    b'{"id":"%d","value1":%d.0,"value2":2.0,"op":"*","result":%d.0}\n' % (n, n, 2 * n)
    for n in range(RECORDS)
)


class Reply(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("http"), slots=2) as made:
        yield made


def _connect(server: up_server.UpServer) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    address = server.http.removeprefix("http://")
    token = (server.data / "token").read_text().strip()
    return http.client.HTTPConnection(address, timeout=40), {"Authorization": f"Bearer {token}"}


def _ask(
    server: up_server.UpServer, method: str, path: str, body: bytes | None = None, **headers: str
) -> Reply:
    connection, shown = _connect(server)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {**shown, **named})
    response = connection.getresponse()
    reply = Reply(response.status, response.read())
    connection.close()
    return reply


def _made(server: up_server.UpServer, query: str) -> str:
    made = _ask(server, "POST", f"/jobs?{query}", LINES)
    assert made.status == 202, made.body
    return str(made.json["id"])


def test_file_upload_gives_its_result(server: up_server.UpServer) -> None:
    job = _made(server, "itemsPerPart=100")
    done = _ask(server, "GET", f"/jobs/{job}?wait=30").json
    assert (done["status"], done["completions"], done["succeeded"]) == ("Complete", 31, 31)
    assert done["records"] == {"total": RECORDS, "succeeded": RECORDS, "failed": 0, "skipped": 0}
    assert _ask(server, "GET", f"/jobs/{job}/results").body == RESULT
    last = b"".join(RESULT.splitlines(keepends=True)[-100:])
    assert _ask(server, "GET", f"/jobs/{job}/results?part=30").body == last
    ranged = _ask(server, "GET", f"/jobs/{job}/results", Range="bytes=1000-1999")
    assert (ranged.status, ranged.body) == (206, RESULT[1000:2000])
    assert _ask(server, "GET", f"/jobs/{job}/input").body == LINES
    assert _ask(server, "GET", f"/jobs/{job}/errors").body == b""
    parts = _ask(server, "GET", f"/jobs/{job}/manifest").json["parts"]
    assert [one["outcome"] for one in parts] == ["Succeeded"] * 30


def test_metrics_count_jobs_by_phase(server: up_server.UpServer) -> None:
    before = _ask(server, "GET", "/metrics").body.decode()
    job = _made(server, "suspend=true")
    try:
        after = _ask(server, "GET", "/metrics").body.decode()
        paused = 'kilnwork_file_jobs{namespace="default",phase="Paused"} 1'
        assert paused not in before
        assert paused in after.splitlines()
    finally:
        assert _ask(server, "DELETE", f"/jobs/{job}").status < 300


def test_watch_of_a_paused_job_reports_changes(server: up_server.UpServer) -> None:
    job = _made(server, "itemsPerPart=100&suspend=true&name=watched")
    connection, shown = _connect(server)
    connection.request("GET", "/jobs/watched/watch", headers=shown)
    stream = connection.getresponse()
    assert b"event: job" in stream.readline()
    assert _ask(server, "GET", f"/jobs/{job}").json["phase"] == "Paused"
    patch = b'{"parallelism":1}'
    kind = "application/merge-patch+json"
    changed = _ask(server, "PATCH", f"/jobs/{job}", patch, Content_Type=kind)
    assert changed.json["parallelism"] == 1
    assert _ask(server, "POST", f"/jobs/{job}/resume").status == 202
    seen = stream.read().decode()
    stream.close()
    connection.close()
    assert seen.rstrip().splitlines()[-1].startswith("data: ")
    assert json.loads(seen.rstrip().splitlines()[-1].removeprefix("data: "))["status"] == "Complete"


def test_cancelled_job_can_be_redriven(server: up_server.UpServer) -> None:
    job = _made(server, "itemsPerPart=100&suspend=true")
    assert _ask(server, "POST", f"/jobs/{job}/cancel").status == 202
    assert _ask(server, "GET", f"/jobs/{job}?wait=30").json["phase"] == "Cancelled"
    assert _ask(server, "GET", f"/jobs/{job}/results").status == 409
    assert _ask(server, "GET", f"/jobs/{job}/results?partial=true").body == b""
    assert _ask(server, "POST", f"/jobs/{job}/pause").status == 409
    assert _ask(server, "POST", f"/jobs/{job}/redrive").status == 202
    assert _ask(server, "GET", f"/jobs/{job}?wait=30").json["run"] == 2
    assert _ask(server, "GET", f"/jobs/{job}/results").body == RESULT
    assert _ask(server, "DELETE", f"/jobs/{job}").status == 202
    assert _ask(server, "GET", f"/jobs/{job}").status == 404


def test_idempotency_key_survives_a_restart(server: up_server.UpServer) -> None:
    first = _ask(server, "POST", "/jobs?suspend=true", LINES, Idempotency_Key="k").json["id"]
    server.kill()
    server.start()
    again = _ask(server, "POST", "/jobs?suspend=true", LINES, Idempotency_Key="k")
    assert (again.status, again.json["id"]) == (202, first)
    other = _ask(server, "POST", "/jobs?suspend=true", LINES[:100], Idempotency_Key="k")
    assert other.status == 422


def test_upload_continues_after_a_kill(server: up_server.UpServer) -> None:
    begun = _ask(server, "POST", "/files", LINES[:50_000], Upload_Complete="?0").json
    server.kill()
    server.start()
    path = f"/files/{begun['id']}"
    offset = _ask(server, "GET", path).json["offset"]
    assert offset == 50_000
    last = _ask(
        *(server, "PATCH", path, LINES[offset:]),
        Content_Type="application/partial-upload",
        Upload_Offset=str(offset),
        Upload_Complete="?1",
    )
    assert last.json["complete"]
    job = _ask(server, "POST", f"/jobs?itemsPerPart=500&file={begun['id']}").json["id"]
    assert _ask(server, "GET", f"/jobs/{job}?wait=30").json["status"] == "Complete"
    assert _ask(server, "GET", f"/jobs/{job}/results").body == RESULT
