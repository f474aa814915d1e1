"""The sidecar of a Pod, as far as it needs no dispatcher: its files, its end, and the result."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from kilnwork.data import local_blobs
from kilnwork.executors.pod import sidecar_container as pod_sidecar
from support import certificates, waiting

IDLE = (
    "import _signal, sys; from kilnwork.worker import sidecar; "
    "_signal.signal(_signal.SIGUSR1, lambda *_: print(*sys.modules, flush=True)); "
    "sidecar.run()"
)


class Sidecar:
    """One process; the volume that it shares with others is `directory`."""

    def __init__(self, directory: Path, **more: str) -> None:
        self.directory = directory / "d"
        self.directory.mkdir(exist_ok=True)
        self.message = directory / "message"
        self.message.touch()
        self.home = directory
        self.variables = {
            "PATH": os.environ["PATH"],
            "KILN_CONTRACT_DIR": str(self.directory),
            "KILN_TOKEN_FILE": "/nowhere",
            "KILN_MESSAGE_FILE": str(self.message),
            "KILN_TASK_ID": "019aa0b2-0000-7000-8000-000000000000",
            "KILN_RUN": "1",
            "KILN_ATTEMPT": "1",
            "KILN_NAMESPACE": "ns",
            "KILN_POD": "p",
            "KILN_CLUSTER": "default",
            "KILN_OUTPUT_TYPE": "json",
            "KILN_CHANNEL": "unix:/nowhere",
            "KILN_BLOBS": str(directory / "blobs"),
            "KILN_GRACE_SECONDS": "2",
            "KILN_MESSAGE_BYTES": "4096",
            **more,
        }
        with (directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", IDLE], env=self.variables, stdout=log, stderr=log
            )

    def wait_ready(self) -> None:
        def look() -> bool:
            assert self.process.poll() is None, (self.home / "log").read_text()
            return (self.directory / "socket").exists()

        waiting.wait_until(look, what="the socket is there")

    def end(self) -> tuple[int, dict[str, object]]:
        """Its exit code and message after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        return code, json.loads(self.message.read_bytes())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Start(Protocol):
    """Start a sidecar, with other variables."""

    def __call__(self, **more: str) -> Sidecar: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Sidecar] = []

    def one(**more: str) -> Sidecar:
        made.append(Sidecar(tmp_path, **more))
        return made[-1]

    yield one
    for sidecar in made:
        sidecar.kill()


def test_a_sidecar_without_requests_imports_little(start: Start, tmp_path: Path) -> None:
    made = start()
    made.wait_ready()
    made.process.send_signal(signal.SIGUSR1)
    log = tmp_path / "log"
    waiting.wait_until(lambda: log.read_text().endswith("\n"), what="it names its modules")
    found = set(log.read_text().split())
    assert {"kilnwork.worker.sidecar", "_socket"} <= found
    assert not found & {"enum", "typing", "pathlib", "signal", "socket", "msgspec", "kilnwork.kit"}
    assert made.end() == (0, {})


@pytest.mark.parametrize("hook_first", [True, False])
def test_startup_hook_ends_when_the_socket_exists(
    start: Start, tmp_path: Path, *, hook_first: bool
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    variables = {"PATH": os.environ["PATH"], "KILN_DIR": str(directory)}
    variables["KILN_SOCKET"] = str(directory / "socket")

    def hook() -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", pod_sidecar.WAIT], env=variables)

    if hook_first:
        waits = hook()
        waiting.wait_until((directory / ".ready").is_fifo, what="the hook waits")
        assert waits.poll() is None
        start().wait_ready()
    else:
        start().wait_ready()
        waits = hook()
    try:
        assert waits.wait(30) == 0
    finally:
        waits.kill()
        waits.wait()


def test_small_result_is_the_termination_message(start: Start, tmp_path: Path) -> None:
    made = start()
    made.wait_ready()
    (made.directory / "output").write_text('{"a": "\u00e9"}')
    assert made.end() == (0, {"result": {"a": "\u00e9"}})


def test_result_too_large_for_the_message_becomes_a_blob(start: Start, tmp_path: Path) -> None:
    made = start(KILN_MESSAGE_BYTES="160", KILN_OUTPUT_TYPE="bytes")
    made.wait_ready()
    content = os.urandom(200)
    (made.directory / "output").write_bytes(content)
    code, said = made.end()
    assert (code, said["sizeBytes"], said["mediaType"]) == (0, 200, "application/octet-stream")
    kept = local_blobs.Blobs(tmp_path / "blobs" / "ns", durable=True)
    assert bytes(kept.get(local_blobs.parse(str(said["digest"])))) == content


def test_message_too_short_for_a_blob_gives_the_reason(start: Start) -> None:
    made = start(KILN_MESSAGE_BYTES="60")
    made.wait_ready()
    (made.directory / "output").write_text('"' + "x" * 200 + '"')
    assert made.end() == (0, {"reason": "ResultTooLarge", "message": "so many co"})


def test_result_that_cannot_be_stored_is_reported_as_lost(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
    ca = certificates.Authority().pem
    made = start(KILN_CHANNEL=f"tls://127.0.0.1:{port}", KILN_CA=ca, KILN_BLOBS="")
    made.wait_ready()
    (made.directory / "output").write_text('"' + "x" * 5000 + '"')
    code, said = made.end()
    assert code == 1
    assert "cannot be reached" in str(said["message"])
    assert "reason" not in said


def test_restarted_sidecar_replaces_the_one_before(start: Start, tmp_path: Path) -> None:
    first = start()
    first.wait_ready()
    first.kill()
    old = (tmp_path / "d" / "socket").stat().st_ino
    second = start()
    waiting.wait_until(
        lambda: (tmp_path / "d" / "socket").stat().st_ino != old, what="another socket is there"
    )
    assert second.end() == (0, {})


def test_socket_appears_after_the_inputs_but_sigterm_is_not_delayed(
    start: Start, tmp_path: Path
) -> None:
    made = start(KILN_HAS_INPUT="true")
    waiting.wait_until(
        lambda: "no link to the dispatcher" in (tmp_path / "log").read_text(),
        what="it looks for one",
    )
    assert not (tmp_path / "d" / "socket").exists()
    assert made.end() == (0, {})
