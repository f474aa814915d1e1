"""exec and attach on the local node when one side fails: client, container, shim, server."""

import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hack.kube import binary

from kilnwork.controlplane.node import spdy
from kilnwork.kit import processes
from support import kube_execs, kube_servers, waiting

pytestmark = pytest.mark.skipif(
    binary.built() is None, reason="no kubectl: `python -m hack.kube build` builds one"
)

POD = "/api/v1/namespaces/default/pods/p"


class World:
    """A control plane with its node, one waiting Pod, and kubectl."""

    def __init__(self, directory: Path, server: kube_servers.Ours, transport: str) -> None:
        self.directory = directory
        self.server = server
        self.admin = server.admin()
        self.kubectl = kube_execs.Kubectl(
            binary.directory() / "kubectl",
            server,
            namespace="default",
            home=directory,
            transport="spdy" if transport == "spdy" else "websocket",
        )
        server.node()
        place = kube_execs.Place("ours", "local", "any")
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        waiting.wait_until(lambda: self.admin.get(account).status == 200, what="the account")
        pod = place.pod("p", "sleep", "300")
        self.admin.post("/api/v1/namespaces/default/pods", pod).ok()
        kube_execs.until_running(self.admin, "default", "p")

    def started(self, process: subprocess.Popen[bytes]) -> int:
        """Return the pid that a command prints first."""
        assert process.stdout is not None
        return int(process.stdout.readline())

    def until_gone(self, pid: int) -> None:
        def gone() -> bool:
            found = processes.identify(pid)
            return found is None or not found.alive()

        waiting.wait_until(gone, what=f"process {pid} has ended")


@pytest.fixture(params=kube_execs.TRANSPORTS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with kube_servers.ours(tmp_path / "data") as server:
        assert isinstance(server, kube_servers.Ours)
        made = World(tmp_path, server, request.param)
        yield made
        made.admin.close()


def finish(process: subprocess.Popen[bytes], *, timeout_s: float = 30.0) -> tuple[int, str]:
    """Return the exit code and the standard error."""
    _, output = process.communicate(timeout=timeout_s)
    return process.returncode, output.decode()


def test_killed_client_hangs_up_the_process(world: World) -> None:
    process = world.kubectl.start("exec", "p", "--", "sh", "-c", "echo $$; exec sleep 301")
    pid = world.started(process)
    process.kill()
    process.communicate()
    world.until_gone(pid)


def test_nohup_survives_the_client(world: World) -> None:
    script = "trap '' HUP; echo $$; sleep 0.5; echo alive >later; exec sleep 301"
    process = world.kubectl.start("exec", "p", "--", "sh", "-c", script)
    pid = world.started(process)
    process.kill()
    process.communicate()
    waiting.wait_until((world.directory / "data" / "later").exists, what="it went on")
    os.kill(pid, signal.SIGKILL)


def test_arguments_that_are_not_utf_8_arrive(world: World) -> None:
    word = os.fsdecode(b"\xff\xfe")
    assert world.kubectl.run("exec", "p", "--", "printf", "%s", word).stdout == b"\xff\xfe"


def test_session_ends_with_the_pod(world: World) -> None:
    process = world.kubectl.start("exec", "p", "--", "sh", "-c", "echo $$; exec sleep 301")
    pid = world.started(process)
    world.admin.delete(f"{POD}?gracePeriodSeconds=0").ok()
    code, output = finish(process)
    assert (code, output) == (137, "command terminated with exit code 137\n")
    world.until_gone(pid)


def test_unread_input_does_not_delay_the_end(world: World) -> None:
    content = os.urandom(8_000_000)
    done = world.kubectl.run(
        "exec", "-i", "p", "--", "sh", "-c", "sleep 0.3; echo hi", stdin=content
    )
    assert (done.returncode, done.stdout) == (0, b"hi\n")


def test_slow_client_blocks_the_process(world: World) -> None:
    """No component between the two buffers unread data."""
    size = 200_000_000
    before = resident()
    argv = ("exec", "p", "--", "sh", "-c", f"head -c {size} /dev/zero; echo done >&2")
    process = world.kubectl.start(*argv)
    assert process.stdout is not None
    assert len(process.stdout.read(1000)) == 1000
    time.sleep(1)
    assert process.poll() is None
    assert resident() - before < 60_000_000
    left = size - 1000
    while left:
        left -= len(process.stdout.read(min(left, 1 << 20)))
    assert finish(process) == (0, "done\n")


def test_slow_process_blocks_the_client(world: World) -> None:
    size = 200_000_000
    script = "read go; sleep 1; wc -c"
    with world.kubectl.start("exec", "-i", "p", "--", "sh", "-c", script) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = resident()
        process.stdin.write(b"go\n")
        writing = threading.Thread(target=fill, args=(process.stdin, size))
        writing.start()
        time.sleep(0.7)
        assert resident() - before < 60_000_000
        writing.join(20)
        assert int(process.stdout.read()) == size
        assert process.wait(15) == 0


def fill(pipe: IO[bytes], size: int) -> None:
    """Write so many bytes and close."""
    while size:
        size -= pipe.write(bytes(min(size, 1 << 20)))
    pipe.close()


def resident() -> int:
    """Return the resident memory in bytes of this process, which runs the control plane."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_killed_shim_leaves_the_exit_code_unknown(world: World) -> None:
    process = world.kubectl.start("exec", "-i", "p", "--", "sh", "-c", "echo $$; cat")
    pid = world.started(process)
    [shim] = [
        found
        for found in processes.all_pids()
        if str(world.directory / "data" / "shim").encode() in command(found)
    ]
    os.kill(shim, signal.SIGKILL)
    code, output = finish(process)
    assert code == 1
    assert "the end of the command was not seen" in output
    world.until_gone(pid)
    waiting.wait_until(
        lambda: world.kubectl.run("exec", "p", "--", "true").returncode == 0,
        what="the next shim serves",
    )


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_stopping_the_server_ends_sessions(world: World) -> None:
    process = world.kubectl.start("exec", "-i", "p", "--", "cat")
    forward = world.kubectl.start("port-forward", "p", ":1", stdin=subprocess.DEVNULL)
    assert forward.stdout is not None
    forward.stdout.readline()
    world.server.run(world.server.plane.stop_node())
    assert finish(process)[0] != 0
    assert finish(forward)[0] == 1


def test_stopping_everything_ends_sessions(tmp_path: Path) -> None:
    with kube_servers.ours(tmp_path / "data") as server:
        assert isinstance(server, kube_servers.Ours)
        world = World(tmp_path, server, "websocket")
        process = world.kubectl.start("exec", "p", "--", "sh", "-c", "echo $$; exec sleep 301")
        pid = world.started(process)
        world.admin.close()
    assert finish(process)[0] != 0
    world.until_gone(pid)


def upgraded(world: World, what: str) -> ssl.SSLSocket:
    """Return a raw connection after the 101 for SPDY."""
    host, _, port = world.server.url.removeprefix("https://").partition(":")
    tls = ssl.create_default_context(cadata=world.server.ca)
    plain = socket.create_connection((host, int(port)), timeout=10)
    connection = tls.wrap_socket(plain, server_hostname=host)
    version = "portforward.k8s.io" if what == "portforward" else "v4.channel.k8s.io"
    lines = [
        f"POST {POD}/{what}?stdin=1&stdout=1&command=cat HTTP/1.1",
        "Host: x",
        f"Authorization: {world.admin.headers['Authorization']}",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        f"X-Stream-Protocol-Version: {version}",
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    assert b" 101 " in head, head
    return connection


def all_of(connection: ssl.SSLSocket) -> bytes:
    found = b""
    while piece := connection.recv(65536):
        found += piece
    return found


@pytest.mark.parametrize("what", ["exec", "portforward"])
@pytest.mark.parametrize("content", [b"\x80\x02GET / HTTP", b"\x80\x03\x00\x01\xff\xff\xff\xff"])
def test_protocol_violation_closes_the_connection(world: World, what: str, content: bytes) -> None:
    with upgraded(world, what) as connection:
        connection.sendall(content)
        assert all_of(connection) == b""
    assert world.kubectl.run("exec", "p", "--", "true").returncode == 0


def test_unrequested_streams_are_refused(world: World) -> None:
    with upgraded(world, "exec") as connection:
        writer, reader = spdy.FrameWriter(), spdy.FrameReader()
        kinds = ["error", "stderr", "stdin", "stdin", "stdout"]
        for number, kind in enumerate(kinds):
            connection.sendall(writer.syn_stream(2 * number + 1, {"streamtype": kind}))
        connection.sendall(spdy.data(5, b"some words", fin=True))
        frames = list(reader.feed(all_of(connection)))
    refused = [f.stream for f in frames if isinstance(f, spdy.RstStream) and f.status == 3]
    assert refused == [3, 7]
    assert [f.stream for f in frames if isinstance(f, spdy.SynReply)] == [1, 5, 9]
    output = b"".join(f.data for f in frames if isinstance(f, spdy.DataPiece) and f.stream == 9)
    assert output == b"some words"
    assert b'"status":"Success"' in b"".join(
        f.data for f in frames if isinstance(f, spdy.DataPiece) and f.stream == 1
    )
