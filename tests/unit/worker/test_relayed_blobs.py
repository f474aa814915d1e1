"""Blobs of a slot whose manager is elsewhere: through the relay's socket, kept in a cache."""

import dataclasses
import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.api import manager_access
from kilnwork.endpoints import manager_client
from kilnwork.worker import relayed_blobs, settings

CONTENT = b"a blob"
DIGEST = hashlib.sha256(CONTENT).digest()


class Relay(threading.Thread):
    """Serves one blob on the relay's socket; `heads`: what was asked."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.heads: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()

    def run(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with accepted:
                head = b""
                while b"\r\n\r\n" not in head and (data := accepted.recv(1 << 16)):
                    head += data
                if head:
                    self.heads.append(head)
                    length = b"Content-Length: %d\r\nConnection: close" % len(CONTENT)
                    accepted.sendall(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n" + CONTENT)

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> settings.WorkerSettings:
    monkeypatch.setattr(manager_client, "slot_manager", None)
    token = tmp_path / "token"
    token.write_text("secret\n")
    return settings.WorkerSettings(
        channel="",
        token_file=token,
        namespace="ns",
        cluster="c",
        worker="w",
        pod_uid="u",
        node="n",
        slots=1,
        mounts=Path("/"),
        remote=settings.RemoteManager("h", 1, tmp_path / "ca", tmp_path),
    )


@pytest.fixture
def relay(given: settings.WorkerSettings) -> Iterator[Relay]:
    assert given.remote is not None
    made = Relay(given.remote.http)
    made.start()
    yield made
    made.stop()


def test_blob_is_fetched_once(given: settings.WorkerSettings, relay: Relay) -> None:
    for _ in range(2):
        assert relayed_blobs.open_blobs(given, "ns").get(DIGEST) == CONTENT
    (head,) = relay.heads
    assert head.startswith(f"GET /blobs/ns/sha256:{DIGEST.hex()} ".encode())
    assert f"{manager_access.TOKEN_HEADER}: secret\r\n".encode() in head
    assert f"{manager_access.CLUSTER_HEADER}: ns/c\r\n".encode() in head
    assert given.remote is not None
    assert (given.remote.blobs / "ns").is_dir()


def test_job_files_are_fetched_through_the_relay(given: settings.WorkerSettings) -> None:
    relayed_blobs.open_blobs(given, "ns")
    assert given.remote is not None
    assert manager_client.slot_manager is not None
    assert manager_client.slot_manager.spool == given.remote.spool


def test_local_dispatcher_needs_no_relayed_blobs(given: settings.WorkerSettings) -> None:
    with pytest.raises(ValueError, match="blobs"):
        relayed_blobs.open_blobs(dataclasses.replace(given, remote=None), "ns")
