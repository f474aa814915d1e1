"""Data of a SyncSet that goes bad: damaged blobs, a source with wrong content, a full disk."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import file_server, ponds, small_disks, waiting
from support import up_server as up_support

FILES = {f"t{number}.csv": f"{number}\n".encode() * 1000 for number in range(4)}
SUM = sum(1000 * number for number in range(4))
FINAL = ("Succeeded", "Failed", "Killed", "AdmissionError")

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


@pytest.fixture
def lake() -> Iterator[file_server.FileServer]:
    with file_server.FileServer(FILES) as served:
        yield served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path, slots=2) as made:
        yield made


def apply(server: up_support.UpServer, kind: str, name: str, spec: dict[str, Any]) -> None:
    body = {"kind": kind, "metadata": {"name": name}, "spec": spec}
    text = json.dumps({"apiVersion": "kilnwork.dev/v1alpha1", **body})
    server.kiln("apply", "-f", "-", stdin=text)


def apply_pond(
    server: up_support.UpServer, lake: file_server.FileServer, path: Path | None = None
) -> None:
    source = {"name": "lake", "uri": lake.uri, "allowAddresses": [f"127.0.0.1:{lake.port}"]}
    more = {} if path is None else {"path": str(path)}
    apply(server, "DataPond", "default", {"sources": [source], **more})
    server.kiln("wait", "datapond/default", "--for=condition=Ready", "--timeout", "60s")


def apply_set(server: up_support.UpServer) -> None:
    """Apply a SyncSet whose flow waits for the file `go`, and adds up all numbers."""
    snapshot = {
        "name": "trades",
        "from": {"source": "lake", "paths": sorted(FILES)},
        "shard": {"by": "files"},
    }
    read = "cat $KILN_DATA/trades/*.csv | awk '{s += $1} END {print s}' > $KILN_OUTPUT"
    wait = f"until [ -e {server.workdir}/go ]; do sleep 0.05; done"
    flow = [{"wait": {"command": ["sh", "-c", wait]}}, {"read": {"command": ["sh", "-c", read]}}]
    spec = {
        "resources": {"groups": [{"name": "worker"}]},
        "data": {"snapshots": [snapshot], "pond": {"order": "lead"}},
        "flow": {"do": flow},
    }
    apply(server, "SyncSet", "risk", spec)


def wait_for_set(
    server: up_support.UpServer, holds: Callable[[dict[str, Any]], object], *, what: str
) -> dict[str, Any]:
    """Wait until the status of the set satisfies `holds`, and return it."""

    def found() -> dict[str, Any]:
        status: dict[str, Any] = server.get("syncsets", "risk").get("status") or {}
        return status if holds(status) else {}

    return waiting.wait_until(found, what=what, timeout_s=60.0)


def wait_for_generation(server: up_support.UpServer, generation: int = 1) -> dict[str, Any]:
    return wait_for_set(
        server,
        lambda status: status.get("phase") in FINAL and status["generation"] == generation,
        what=f"generation {generation} is over",
    )


def run_first_generation(server: up_support.UpServer) -> None:
    """Run the first generation, which reads all data; its snapshot stays in the pond."""
    (server.workdir / "go").touch()
    status = wait_for_generation(server)
    assert (status["phase"], status["result"]["value"]) == ("Succeeded", SUM), status


def blob_file(server: up_support.UpServer, name: str) -> Path:
    digest = ponds.digest_of(FILES[name]).removeprefix("sha256:")
    return server.data / "ponds/default/default/blobs" / digest[:2] / digest


def damage_blobs(server: up_support.UpServer) -> None:
    """Flip a bit of one blob, and truncate another."""
    flipped, cut = blob_file(server, "t1.csv"), blob_file(server, "t2.csv")
    with flipped.open("r+b") as file:
        file.write(bytes([FILES["t1.csv"][0] ^ 1]))
    with cut.open("r+b") as file:
        file.truncate(1000)


def quarantined_count(server: up_support.UpServer) -> int:
    found = json.loads(server.kiln("data", "default", "-o", "json").stdout)
    count: int = found["ponds"]["default"][0]["counters"]["quarantined"]
    return count


def test_damaged_blobs_are_quarantined_and_fetched_again(
    server: up_support.UpServer, lake: file_server.FileServer
) -> None:
    apply_pond(server, lake)
    apply_set(server)
    run_first_generation(server)
    damage_blobs(server)
    lake.requests.clear()

    server.kiln("replay", "risk", "--generation", "1")

    status = wait_for_generation(server, 2)
    assert (status["phase"], status["result"]["value"]) == ("Succeeded", SUM), status
    assert sorted(lake.gets) == ["t1.csv", "t2.csv"]
    assert quarantined_count(server) == 2
    aside = server.data / "ponds/default/default/quarantine"
    names = {blob_file(server, "t1.csv").name, blob_file(server, "t2.csv").name}
    assert {path.name for path in aside.iterdir()} == names


@pytest.mark.parametrize("reason", ["DataCorrupt", "SourceChanged"])
def test_data_that_stays_damaged_fails_the_generation(
    server: up_support.UpServer, lake: file_server.FileServer, reason: str
) -> None:
    """The source sends other content at each request, or other content than in its first
    manifest.
    """
    apply_pond(server, lake)
    apply_set(server)
    run_first_generation(server)
    damage_blobs(server)
    numbers = itertools.count()
    if reason == "DataCorrupt":
        lake.damage = lambda path, content: f"{next(numbers):06}".encode() + content[6:]
    else:
        lake.files = dict.fromkeys(FILES, b"9\n" * 1000)

    server.kiln("replay", "risk", "--generation", "1")

    status = wait_for_generation(server, 2)
    assert (status["phase"], status["reason"]) == ("Failed", reason), status
    node, _, text = status["message"].partition(": ")
    assert (node.split()[0], text.split()[0] != "node") == ("node", True), status
    message = server.kiln("why", "syncset/risk").stdout
    assert f"SyncSet risk is Failed ({reason})" in message


def test_running_flow_fails_when_its_data_is_found_corrupt(
    server: up_support.UpServer, lake: file_server.FileServer
) -> None:
    """The delivery of another generation may find it, or, as here, a lease of another client."""
    apply_pond(server, lake)
    apply_set(server)
    wait_for_set(server, lambda status: status.get("phase") == "Running", what="the flow runs")
    damage_blobs(server)
    numbers = itertools.count()
    lake.damage = lambda path, content: f"{next(numbers):06}".encode() + content[6:]

    paths = [f"--path={name}" for name in FILES]
    server.kiln("data", "default", "--fetch", "lake", *paths, "--lease", "other", check=False)

    status = wait_for_generation(server)
    assert (status["phase"], status["reason"]) == ("Failed", "DataCorrupt"), status


def test_set_reports_a_full_disk_and_continues_when_there_is_room(
    server: up_support.UpServer, lake: file_server.FileServer, tmp_path: Path
) -> None:
    lake.files = {**FILES, "t0.csv": b"0\n" * (1 << 20)}
    with small_disks.mounted(tmp_path) as disk:
        ballast = disk / "ballast"
        try:
            apply_pond(server, lake, disk / "pond")
            small_disks.fill(ballast)
            (server.workdir / "go").touch()
            apply_set(server)

            status = wait_for_set(
                server, lambda s: "disk" in s.get("message", ""), what="the message names the disk"
            )
            assert status["phase"] == "Pending"
            assert "free some" in status["message"]
            assert "free some" in server.kiln("why", "syncset/risk").stdout
            ballast.unlink()
            status = wait_for_generation(server)
            assert (status["phase"], status["result"]["value"]) == ("Succeeded", SUM), status
        finally:
            server.kiln("delete", "syncset/risk", "datapond/default")
