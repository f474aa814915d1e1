"""The ends of a process's input and output, also when descriptors run out."""

import asyncio
import socket
from pathlib import Path

import pytest

from kilnwork.controlplane.node import (
    exec_link,
    execs,
    multiplexed_connection,
    streams_interface,
    streams_spdy,
)
from kilnwork.kit import coroutines
from support import file_descriptors

EVERYTHING = (streams_interface.STDIN, streams_interface.STDOUT, streams_interface.STDERR)


@pytest.mark.parametrize("room", range(6))
async def test_failed_pipe_creation_leaves_nothing_open(room: int) -> None:
    before = file_descriptors.open_descriptors()
    with file_descriptors.limit_new(room), pytest.raises(OSError, match="Too many open files"):
        execs.ends(EVERYTHING, tty=False)
    assert file_descriptors.open_descriptors() == before


@pytest.mark.parametrize("room", range(3))
async def test_failed_terminal_creation_leaves_nothing_open(room: int) -> None:
    before = file_descriptors.open_descriptors()
    with file_descriptors.limit_new(room), pytest.raises(OSError, match=r"open files|pty"):
        execs.ends(EVERYTHING, tty=True)
    assert file_descriptors.open_descriptors() == before


@pytest.mark.parametrize("tty", [False, True])
async def test_all_descriptors_are_closed(tty: bool) -> None:  # noqa: FBT001
    before = file_descriptors.open_descriptors()
    made = execs.ends((streams_interface.STDOUT,), tty=tty)
    made.close_child_ends()
    made.close()
    assert file_descriptors.open_descriptors() == before


@pytest.mark.parametrize("what", ["exec", "attach"])
async def test_client_disconnect_ends_wait_for_a_silent_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)  # for a short path
    shim = Path("s")
    connection = multiplexed_connection.StreamConnection(
        streams_spdy.SpdySession(), on_open=lambda _: True
    )
    session = execs.ExecSession(connection=connection, streams={}, tty=False)
    if what == "exec":
        command = exec_link.ExecCommand("c", ["true"])
        running = execs.execute(session, shim=shim, command=command)
    else:
        running = execs.attach(session, shim=shim, container="c")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(shim))
        silent.listen()
        silent.setblocking(False)
        before = file_descriptors.open_descriptors()
        ending = coroutines.BackgroundWork("test").start(what, running)
        loop = asyncio.get_running_loop()
        asked, _ = await asyncio.wait_for(loop.sock_accept(silent), 30)
        connection.gone.set()
        assert await asyncio.wait_for(ending, 30) is None
        assert (await asyncio.wait_for(loop.sock_recv(asked, 4096), 30)).startswith(b"{")
        assert await asyncio.wait_for(loop.sock_recv(asked, 4096), 30) == b"", "it closes"
        asked.close()
        assert file_descriptors.open_descriptors() == before
