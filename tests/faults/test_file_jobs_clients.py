"""Clients of file jobs that vanish, repeat their requests, or whose server is killed meanwhile.

Seeded: the seed is printed, KILN_FAULT_SEED repeats it.
"""

import contextlib
import json
import os
import random
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from urllib import parse

import pytest

from support import up_files, waiting
from support import up_server as up_support

SEED = int(os.environ.get("KILN_FAULT_SEED", "20261121"))
KILLS = 20 if "KILN_FAULT_FILES_RUNS" in os.environ else 4
LARGE = b"".join(b'{"n":%d}\n' % n for n in range(150_000))
SMALL = LARGE[:8000]
IDENTITY = {"mapper": {"builtin": "identity"}, "itemsPerPart": 50_000}
DAY_S = 86_400

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_files.UpFiles]:
    directory = tmp_path_factory.mktemp("clients")
    server = up_support.UpServer(directory / "data", workdir=directory, slots=2)
    server.start()
    made = up_files.UpFiles(server)
    try:
        yield made
    finally:
        assert server.stop() == 0, server.log.read_text()[-4000:]
        left = server.leftovers()
    assert left == {}
    made.assert_tidy(*made.seen)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    print(f"seed {SEED}: repeat with KILN_FAULT_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def send_part_of_request(
    world: up_files.UpFiles, head: str, body: bytes, **headers: str
) -> socket.socket:
    """Send the head of a request and this much of its body; return the open connection."""
    place = parse.urlsplit(world.server.http)
    assert place.hostname is not None
    assert place.port is not None
    made = socket.create_connection((place.hostname, place.port), timeout=20)
    lines = [f"{head} HTTP/1.1", f"Host: {place.netloc}"]
    lines += [f"{name}: {value}" for name, value in world.headers(**headers).items()]
    made.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return made


def multipart_body(data: bytes) -> bytes:
    start = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    return start + data + b"\r\n--xyz--\r\n"


def chunked_body(data: bytes) -> bytes:
    pieces = (data[at : at + 70_000] for at in range(0, len(data), 70_000))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


UPLOADS = {
    "raw": (LARGE, {"Content_Length": str(len(LARGE))}),
    "form": (
        multipart_body(LARGE),
        {
            "Content_Length": str(len(multipart_body(LARGE))),
            "Content_Type": "multipart/form-data; boundary=xyz",
        },
    ),
    "chunked": (chunked_body(LARGE), {"Transfer_Encoding": "chunked"}),
}


@pytest.mark.parametrize("upload", UPLOADS)
def test_upload_of_a_vanished_client_leaves_no_files(
    world: up_files.UpFiles, rng: random.Random, upload: str
) -> None:
    body, headers = UPLOADS[upload]
    jobs, before = world.jobs(), world.stored()
    for cut in [0, len(body) - 1, *rng.sample(range(len(body)), 6)]:
        with send_part_of_request(
            world, "POST " + up_files.job_url(IDENTITY), body[:cut], **headers
        ) as one:
            if rng.random() < 0.5:  # else the client vanishes at once
                with contextlib.suppress(AssertionError):
                    waiting.wait_until(
                        lambda: world.stored() != before, what="a file appears", timeout_s=0.1
                    )
            if rng.random() < 0.5:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # RST
        waiting.wait_until(lambda: world.stored() == before, what="the files are removed")
    assert world.jobs() == jobs
    with send_part_of_request(
        world, "POST " + up_files.job_url(IDENTITY), body, **headers
    ) as whole:
        assert b" 202 " in whole.recv(200)
    [job] = set(world.jobs()) - set(jobs)
    world.ended(job)
    world.assert_sound(job, LARGE, up_files.ExpectedResult(LARGE, [], LARGE.count(b"\n")))


def test_resumable_upload_continues_after_disconnects_and_kills(
    world: up_files.UpFiles, rng: random.Random
) -> None:
    """The client vanishes in the middle of each piece, and the server is killed twice."""
    begun = world.ask("POST", "/files", b"", Upload_Complete="?0")
    path, jobs = begun.headers["location"], world.jobs()
    cuts = sorted(rng.sample(range(1, len(LARGE)), 6))
    killed = set(rng.sample(cuts, 2))
    offset = 0
    for cut in cuts:
        piece = {"Upload_Offset": str(offset), "Upload_Complete": "?0"}
        kind = {"Content_Type": "application/partial-upload", "Content_Length": str(len(LARGE))}
        with send_part_of_request(world, f"PATCH {path}", LARGE[offset:cut], **piece, **kind):
            time.sleep(rng.uniform(0, 0.05))
            if cut in killed:
                world.server.kill()
        if cut in killed:
            world.server.start()
        offsets: list[int] = []

        def settled(seen: list[int] = offsets) -> bool:
            seen.append(int(world.ask("HEAD", path).headers["upload-offset"]))
            return seen[-2:-1] == seen[-1:]

        waiting.wait_until(settled, what="the offset is stable", every_s=0.1)
        assert offset <= offsets[-1] <= cut
        offset = offsets[-1]
    name = path.partition("?")[0].rpartition("/")[2]
    early = world.ask("POST", f"/jobs?file={name}", json.dumps(IDENTITY).encode())
    assert early.status == 409
    assert world.jobs() == jobs
    waiting.wait_until(lambda: complete_upload(world, path, LARGE), what="the upload is complete")
    made = world.ask("POST", f"/jobs?file={name}", json.dumps(IDENTITY).encode())
    job = made.json["id"]
    world.ended(job)
    world.assert_sound(job, LARGE, up_files.ExpectedResult(LARGE, [], LARGE.count(b"\n")))
    assert world.ask("DELETE", path).status == 204


def complete_upload(world: up_files.UpFiles, path: str, data: bytes) -> bool:
    """Send the rest of the file, and return whether it was accepted.

    It is refused (409) as long as the server takes the connection of a vanished client for open.
    """
    offset = world.ask("HEAD", path).headers["upload-offset"]
    last = {"Upload_Offset": offset, "Upload_Complete": "?1"}
    kind = {"Content_Type": "application/partial-upload"}
    status = world.ask("PATCH", path, data[int(offset) :], **last, **kind).status
    assert status in (200, 409)
    return status == 200


def test_unfinished_upload_is_removed_after_a_day(world: up_files.UpFiles) -> None:
    begun = world.ask("POST", "/files", SMALL, Upload_Complete="?0")
    path = begun.headers["location"]
    name = path.partition("?")[0].rpartition("/")[2]
    [state] = world.directory.glob(f"_uploads/default/{name}/state.json")
    world.server.kill()
    old = json.loads(state.read_text())
    before = old["created"] - DAY_S - 60
    state.write_text(json.dumps({**old, "created": before}))
    os.utime(state.parent / "data" / "kept", (before, before))
    world.server.start()
    waiting.wait_until(
        lambda: not [path for path in world.stored() if name in path], what="the upload is removed"
    )
    assert world.ask("HEAD", path).status == 404


def remove_orphans(world: up_files.UpFiles) -> None:
    """Remove inputs of a server that died before it wrote the row of their job.

    The server sweeps them after a day. All jobs must be finished.
    """
    for orphan in world.directory.glob("default/*/input"):
        if not orphan.with_name("job.json").exists():
            assert orphan.read_bytes() == LARGE
            shutil.rmtree(orphan.parent)


def test_server_killed_while_a_job_takes_an_upload_has_one_job(
    world: up_files.UpFiles, rng: random.Random
) -> None:
    """The upload stays whole, and the job gets its bytes as a hard link, not a copy."""
    whole = world.ask("POST", "/files", LARGE)
    name, key = whole.json["id"], {"Idempotency_Key": "killed-by-reference"}
    spec = json.dumps(IDENTITY).encode()
    for _ in range(KILLS):
        length = {"Content_Length": str(len(spec))}
        with send_part_of_request(world, f"POST /jobs?file={name}", spec, **length, **key):
            time.sleep(rng.uniform(0, 0.1))
            world.server.kill()
        world.server.start()
        assert world.ask("GET", f"/files/{name}").json["complete"]
    made = world.ask("POST", f"/jobs?file={name}", spec, **key)
    again = world.ask("POST", f"/jobs?file={name}", spec, **key)
    job = made.json["id"]
    assert again.json["id"] == job
    world.ended(job)
    directory = world.directory / made.json["storageBlobPrefix"]
    [kept] = world.directory.glob(f"_uploads/default/{name}/data/bytes")
    assert kept.samefile(directory / "input")
    assert world.ask("DELETE", f"/files/{name}").status == 204
    world.assert_sound(job, LARGE, up_files.ExpectedResult(LARGE, [], LARGE.count(b"\n")))
    remove_orphans(world)


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_concurrent_posts_with_one_idempotency_key_create_one_job(
    world: up_files.UpFiles, data: bytes
) -> None:
    key, jobs = f"many-{len(data)}", world.jobs()
    barrier = threading.Barrier(8)

    def post() -> up_files.Response:
        barrier.wait()
        while True:
            response = world.ask("POST", up_files.job_url(IDENTITY), data, Idempotency_Key=key)
            if response.status not in (409, 429):
                return response
            time.sleep(0.02)

    with futures.ThreadPoolExecutor(8) as pool:
        responses = [future.result() for future in [pool.submit(post) for _ in range(8)]]
    assert {response.status for response in responses} == {202}
    [job] = {response.json["id"] for response in responses}
    assert set(world.jobs()) - set(jobs) == {job}
    assert sorted("idempotency-replayed" in response.headers for response in responses) == [
        False,
        *[True] * 7,
    ]
    world.ended(job)
    world.assert_sound(job, data, up_files.ExpectedResult(data, [], data.count(b"\n")))


def test_server_killed_between_acceptance_and_response_has_one_job(
    world: up_files.UpFiles, rng: random.Random
) -> None:
    accepted = 0
    made: list[tuple[str, bytes]] = []
    for number in range(KILLS):
        data, jobs = rng.choice([SMALL, LARGE]), world.jobs()
        headers = {"Content_Length": str(len(data)), "Idempotency_Key": f"killed-{number}"}
        with send_part_of_request(
            world, "POST " + up_files.job_url(IDENTITY), data[:-1], **headers
        ) as one:
            time.sleep(rng.uniform(0.05, 0.1))  # the server stores the body meanwhile
            one.sendall(data[-1:])
            time.sleep(rng.choice([0, 0.002, 0.01, 0.03]) * rng.random())
            world.server.kill()
        world.server.start()
        known = set(world.jobs()) - set(jobs)
        accepted += len(known)
        again = world.ask(
            "POST", up_files.job_url(IDENTITY), data, Idempotency_Key=f"killed-{number}"
        )
        assert again.status == 202
        assert ("idempotency-replayed" in again.headers) == bool(known)
        assert set(world.jobs()) - set(jobs) == {again.json["id"]}
        assert known <= {again.json["id"]}
        made.append((again.json["id"], data))
    for job, data in made:
        world.ended(job)
        world.assert_sound(job, data, up_files.ExpectedResult(data, [], data.count(b"\n")))
    print(f"{accepted} of {KILLS} were accepted before the kill")
    remove_orphans(world)
