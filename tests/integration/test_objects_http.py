"""Files of jobs over HTTP: access rights, and clients that survive failures of a manager."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kilnwork.data import disk_checks, errors
from kilnwork.data.stores import local, manager_http_store, port
from kilnwork.kit import asgi, http1_client
from support import file_descriptors, object_stores, small_disks, waiting

LARGE = 5 << 20


@pytest.fixture
def kept(tmp_path: Path) -> local.LocalStore:
    return local.LocalStore(tmp_path / "files")


@pytest.fixture
def served(kept: local.LocalStore) -> Iterator[object_stores.ObjectServer]:
    with object_stores.ObjectServer(kept) as made:
        yield made


@pytest.fixture
def job(
    served: object_stores.ObjectServer, tmp_path: Path
) -> Iterator[manager_http_store.RemoteStore]:
    """Return a worker's view of job `j` in namespace `ns`."""
    made = manager_http_store.RemoteStore(
        "kiln:ns/j", served.connector(), spool=tmp_path / "spool", patience_s=5
    )
    yield made
    made.client.close()


def response_to(
    served: object_stores.ObjectServer, method: str, path: str, body: bytes | None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http1_client.Connection(served.connector().connect())
    reported = {**object_stores.Worker().headers(), **headers}
    length = None if body is None else len(body)
    connection.send(method, path, reported, body=(body or b"",), length=length)
    response = connection.read_head(to=method)
    found = response.status, response.headers, connection.read(most=1 << 24)
    connection.close()
    return found


def write(store: port.Store, key: str, content: bytes) -> port.ObjectFacts:
    with store.writer(key, create=True) as new:
        new.write(content)
        return new.commit()


def read(store: port.Store, key: str) -> bytes:
    with store.read(key) as reading:
        return b"".join(reading)


def is_open(path: Path) -> bool:
    for descriptor in file_descriptors.open_descriptors():
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/self/fd/{descriptor}").readlink() == path:
                return True
    return False


# access rights


def test_slot_has_the_rights_for_its_work(
    kept: local.LocalStore, job: manager_http_store.RemoteStore
) -> None:
    content = os.urandom(LARGE)
    kept.put("ns/j/input", content)
    assert read(job, "input") == content
    write(job, "out/1-1-1.ndjson", content)
    job.put("commits/1-1", b"{}", create=True)
    write(job, "result/1-1", b"all")
    assert read(kept, "ns/j/out/1-1-1.ndjson") == content
    assert [facts.key for facts in job.list("commits/")] == ["commits/1-1"]
    assert list(job.directories()) == ["commits", "out", "result"]
    job.delete(["out/1-1-1.ndjson", "out/none"])  # another attempt was first
    assert [facts.key for facts in job.list("out/")] == []


@pytest.mark.parametrize(
    "story",
    [
        lambda job: job.put("commits/1-1", b"{}"),
        lambda job: job.put("commits/1-1", b"{}", if_match="x"),
        lambda job: job.put("job.json", b"{}", create=True),
        lambda job: job.put("input", b"{}", create=True),
        lambda job: job.delete(["input"]),
        lambda job: job.delete(["commits/1-1"]),
        lambda job: write(job, "manifest.json", b"{}"),
    ],
)
def test_slot_cannot_replace_or_remove_foreign_objects(
    kept: local.LocalStore,
    job: manager_http_store.RemoteStore,
    story: Callable[[port.Store], object],
) -> None:
    kept.put("ns/j/input", b"1")
    with pytest.raises(errors.StoreRefused, match="a worker may"):
        story(job)
    assert [facts.key for facts in kept.list()] == ["ns/j/input"]


@pytest.mark.parametrize(
    ("caller", "says"),
    [
        (object_stores.Worker(token="wrong"), "send the bearer token|401"),
        (object_stores.Worker("other/default"), "send the bearer token|401"),
        (object_stores.Worker(""), "a worker may|Forbidden"),
    ],
)
def test_other_callers_are_refused(
    kept: local.LocalStore,
    served: object_stores.ObjectServer,
    caller: object_stores.Worker,
    says: str,
) -> None:
    kept.put("ns/j/input", b"1")
    store = manager_http_store.RemoteStore("kiln:ns/j", served.connector(caller))
    for story in (
        lambda: store.head("input"),
        lambda: store.read("input"),
        lambda: list(store.list()),
        lambda: store.put("commits/1-1", b"", create=True),
    ):
        with pytest.raises(errors.StoreRefused, match=says):
            story()
    assert [facts.key for facts in kept.list()] == ["ns/j/input"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/objects", 404),
        ("GET", "/objects/NS/x", 404),
        ("GET", "/objects/ns/j/none", 404),
        ("GET", "/objects/ns/../other/x", 400),
        ("GET", "/objects/ns/%2e%2e/other/x", 400),
        ("GET", "/objects/ns/j/.lock", 400),
        ("GET", "/objects/ns?prefix=../", 400),
        ("GET", "/objects/ns?directories=../", 400),
        ("GET", "/objects/ns?directories=j", 400),
        ("PUT", "/objects/ns", 405),
        ("POST", "/objects/ns/j/out/x", 405),
        ("GET", "/objects/ns/j/input", 200),
    ],
)
def test_malformed_object_names_are_refused(
    kept: local.LocalStore, served: object_stores.ObjectServer, method: str, path: str, status: int
) -> None:
    kept.put("ns/j/input", b"1")
    kept.put("other/x", b"1")
    assert response_to(served, method, path, None)[0] == status


@pytest.mark.parametrize(
    ("text", "status", "found"),
    [
        ("bytes=2-4", 206, b"234"),
        ("bytes=8-", 206, b"89"),
        ("bytes=8-100", 206, b"89"),
        ("bytes=10-", 416, b""),
        ("bytes=-3", 400, None),
        ("bytes=1-2,4-5", 400, None),
        ("lines=1-2", 400, None),
    ],
)
def test_get_supports_ranges(
    kept: local.LocalStore, served: object_stores.ObjectServer, text: str, status: int, found: bytes
) -> None:
    kept.put("ns/j/input", b"0123456789")
    status_found, headers, body = response_to(
        served, "GET", "/objects/ns/j/input", None, Range=text
    )
    assert status_found == status
    if found is not None:
        assert body == found
        assert headers["content-range"].endswith("/10")


# troubles


class Trouble:
    """App in front of another: it passes requests on, or carries them out without a response."""

    def __init__(self, served: object_stores.ObjectServer) -> None:
        self._app = served.app
        self.unheard = 0
        """Number of PUTs that are carried out, with the connection cut instead of a response."""
        self.breaks = 0
        """So many GETs are cut off after their first piece."""
        self.seen: list[str] = []
        served.app = self

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        self.seen.append(scope["method"])
        if scope["method"] == "PUT" and self.unheard:
            self.unheard -= 1

            async def ignore(_: asgi.Message) -> None:
                return

            await self._app(scope, receive, ignore)
            await asgi.Request(scope, receive).cut()
        elif scope["method"] == "GET" and self.breaks:
            self.breaks -= 1

            async def send_some(message: asgi.Message) -> None:
                if message["type"] == "http.response.body":
                    await send({**message, "body": message["body"][:100_000], "more_body": True})
                    await asgi.Request(scope, receive).cut()
                    raise ConnectionError
                await send(message)

            with contextlib.suppress(ConnectionError):
                await self._app(scope, receive, send_some)
        else:
            await self._app(scope, receive, send)


def test_create_whose_response_was_lost_is_recognized(
    served: object_stores.ObjectServer, job: manager_http_store.RemoteStore
) -> None:
    trouble = Trouble(served)
    trouble.unheard = 1
    job.put("commits/1-1", b"ours", create=True)
    trouble.unheard = 2
    write(job, "out/1", os.urandom(LARGE))
    assert trouble.seen.count("PUT") == 5
    with pytest.raises(errors.ObjectExists):
        job.put("commits/1-1", b"ours", create=True)


@pytest.mark.parametrize("theirs", [b"their", b"ours and more", b"", b"theirs, which is longer"])
def test_create_that_another_writer_won_is_refused(
    kept: local.LocalStore,
    served: object_stores.ObjectServer,
    job: manager_http_store.RemoteStore,
    theirs: bytes,
) -> None:
    trouble = Trouble(served)
    trouble.unheard = 1
    kept.put("ns/j/commits/1-1", theirs)
    with pytest.raises(errors.ObjectExists):
        job.put("commits/1-1", b"ours", create=True)
    with pytest.raises(errors.ObjectExists):
        write(job, "commits/1-1", b"ours")
    assert read(job, "commits/1-1") == theirs


def test_swap_whose_response_was_lost_is_recognized(kept: local.LocalStore) -> None:
    with object_stores.ObjectServer(kept, rule=lambda asked: True) as served:
        store = manager_http_store.RemoteStore("kiln:ns", served.connector())
        trouble = Trouble(served)
        first = store.put("job.json", b"1")
        trouble.unheard = 1
        second = store.put("job.json", b"2", if_match=first.etag)
        assert second == store.head("job.json")
        trouble.unheard = 1
        with pytest.raises(errors.ObjectChanged):
            store.put("job.json", b"3", if_match=first.etag)
        store.client.close()


def test_interrupted_read_is_resumed(
    kept: local.LocalStore, served: object_stores.ObjectServer, job: manager_http_store.RemoteStore
) -> None:
    content = os.urandom(LARGE)
    kept.put("ns/j/input", content)
    trouble = Trouble(served)
    trouble.breaks = 5
    assert read(job, "input") == content
    assert trouble.seen == ["GET"] * 6


def test_read_survives_a_restart(
    kept: local.LocalStore, served: object_stores.ObjectServer, job: manager_http_store.RemoteStore
) -> None:
    content = os.urandom(4 * LARGE)
    kept.put("ns/j/input", content)
    with job.read("input", start=7) as reading:
        pieces = iter(reading)
        found = bytearray(next(pieces))
        served.restart(lambda: None)
        for piece in pieces:
            found += piece
    assert bytes(found) == content[7:]


def test_interrupted_read_resumes_only_in_the_same_version(
    kept: local.LocalStore, served: object_stores.ObjectServer, job: manager_http_store.RemoteStore
) -> None:
    for spoil in (
        lambda: kept.put("ns/j/input", bytes(LARGE)),
        lambda: kept.delete(["ns/j/input"]),
    ):
        kept.put("ns/j/input", os.urandom(LARGE))
        Trouble(served).breaks = 1
        with job.read("input") as reading:
            spoil()
            with pytest.raises(errors.ObjectChanged, match="read it again"):
                list(reading)


def test_client_waits_for_an_absent_manager(
    served: object_stores.ObjectServer, job: manager_http_store.RemoteStore
) -> None:
    served.restart(lambda: None)
    assert write(job, "out/1", b"x").bytes == 1

    def away() -> None:
        store = manager_http_store.RemoteStore("kiln:ns/j", served.connector(), patience_s=0.2)
        with pytest.raises(errors.StoreUnreachable, match="is it running"):
            store.head("input")
        with pytest.raises(errors.StoreUnreachable, match="is it running"):
            write(store, "out/2", b"")

    served.restart(away)


def test_put_that_is_cut_off_leaves_no_file(
    kept: local.LocalStore, served: object_stores.ObjectServer
) -> None:
    connection = http1_client.Connection(served.connector().connect())
    reported = {**object_stores.Worker().headers(), "If-None-Match": "*"}
    reported["Content-Length"] = str(LARGE)
    connection.send("PUT", "/objects/ns/j/out/1", reported, body=(bytes(LARGE - 1),))
    waiting.wait_until(lambda: any(kept.directory.rglob(".new-*")), what="an unfinished file")
    connection.close()
    waiting.wait_until(
        lambda: not any(path.is_file() for path in kept.directory.rglob("*")),
        what="an empty directory",
    )


def test_full_disk_at_the_manager_is_an_error(
    kept: local.LocalStore,
    served: object_stores.ObjectServer,
    job: manager_http_store.RemoteStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = os.statvfs(kept.directory.parent)
    monkeypatch.setattr(disk_checks, "SPARE_BYTES", disk.f_blocks * disk.f_frsize)
    monkeypatch.setattr(disk_checks, "_SPARE_PART", 1)
    with pytest.raises(errors.StoreFull, match="journal"):
        write(job, "out/1", bytes(LARGE))
    assert list(kept.list()) == []


def test_stalled_reader_is_cut_off_and_resumes(
    kept: local.LocalStore,
    served: object_stores.ObjectServer,
    job: manager_http_store.RemoteStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asgi, "STALL_S", 0.1)
    content = os.urandom(8 * LARGE)  # more than fits into sockets
    kept.put("ns/j/input", content)
    trouble = Trouble(served)
    with job.read("input") as reading:
        pieces = iter(reading)
        found = bytearray(next(pieces))
        waiting.wait_until(lambda: not is_open(kept.path("ns/j/input")), what="it is closed")
        for piece in pieces:
            found += piece
    assert bytes(found) == content
    assert len(trouble.seen) > 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disks.mounted(tmp_path, mib=4) as made:
        yield made


def test_full_spool_is_an_error(
    served: object_stores.ObjectServer, kept: local.LocalStore, small_disk: Path
) -> None:
    spool = small_disk / "spool"
    job = manager_http_store.RemoteStore("kiln:ns/j", served.connector(), spool=spool, patience_s=5)
    with (
        pytest.raises(errors.StoreFull, match=rf"out/1-1 .*{spool}.*No space left.*TMPDIR"),
        job.writer("out/1-1", create=True) as new,
    ):
        new.write(bytes(8 << 20))
    assert list(spool.iterdir()) == []
    assert os.statvfs(small_disk).f_bfree >= (4 << 20) // 4096 - 8
    assert list(kept.list()) == []
    assert read_back(job, small=b"a small one goes on")


def read_back(job: manager_http_store.RemoteStore, *, small: bytes) -> bool:
    write(job, "out/2-1", small)
    return read(job, "out/2-1") == small


def test_missing_spool_directory_is_an_error(
    served: object_stores.ObjectServer, tmp_path: Path
) -> None:
    (tmp_path / "gone").write_text("a file, where the worker had its directory")
    spool = tmp_path / "gone" / "spool"
    job = manager_http_store.RemoteStore("kiln:ns/j", served.connector(), spool=spool, patience_s=5)
    with pytest.raises(errors.StoreRefused, match=rf"out/1-1 .*{spool}.*Not a directory.*TMPDIR"):
        job.writer("out/1-1", create=True)


def test_removed_spool_directory_is_created_again(
    job: manager_http_store.RemoteStore, kept: local.LocalStore
) -> None:
    write(job, "out/1-1", b"one")
    assert job.spool is not None
    job.spool.rmdir()
    write(job, "out/1-2", b"two")
    assert [facts.key for facts in kept.list()] == ["ns/j/out/1-1", "ns/j/out/1-2"]


def test_error_is_named_without_a_temporary_directory(served: object_stores.ObjectServer) -> None:
    """Not even its error message may need a temporary file."""
    program = (
        "import os, tempfile\n"
        "from kilnwork.data import errors\n"
        "from kilnwork.data.stores import manager_http_store\n"
        "tempfile._candidate_tempdir_list = lambda: ['/proc']\n"
        "try: manager_http_store.RemoteStore('kiln:ns/j', None).writer('out/1-1')\n"
        "except errors.StoreRefused as error: print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert output.startswith("out/1-1 cannot be kept")
    assert "TMPDIR" in output
