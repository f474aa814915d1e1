"""Client of the shim for exec and attach: starts a process in a container or joins its output.

Used by `execs` and `kubelet_streaming` (kubectl exec, attach), and by `local_node` for probes and
hooks. Each request has a connection of its own to the shim (`shim_exec_server` and
`shim_attach_server` describe the protocol). Input and output are descriptors whose other ends the
caller keeps (`exec_io`).
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from kilnwork.controlplane.node import errors, exec_io, shim_exec_server

OUTPUT = 10 * 1024
"""Bytes of output that `run` keeps, as the kubelet does for a probe."""

RESPONSE_TIMEOUT_S = 30.0
"""Timeout for the shim to start a process or to attach us to a container."""

_LINE = 64 * 1024
_SILENT = "the shim does not respond: its machine is overloaded, or it was stopped by a signal"


class CommandNotStarted(errors.NodeError):
    """The program could not be executed. The message says why."""


class NotRunning(errors.NodeError):
    """The container does not run, or no longer runs."""


class ExecCommand(NamedTuple):
    """Command to run in a container."""

    container: str
    argv: Sequence[str]
    tty: bool = False
    """Make standard input the controlling terminal."""
    hangup: int = signal.SIGHUP
    """Signal for the process group if `ExecProcess.close` is called before the process has
    ended."""


class ExecProcess:
    """A running process of an exec request.

    Call `close` in any case: a process that still runs then gets the hangup signal.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.pid = 0

    @classmethod
    async def start(cls, shim: Path, command: ExecCommand, descriptors: Sequence[int]) -> Self:
        """Start the process with copies of three descriptors. The caller closes the originals.

        Raises `ShimAway`, `NotRunning`, `CommandNotStarted`.
        """
        request = {"n": 1, "do": "exec", **command._asdict()}
        line = json.dumps(request).encode() + b"\n"
        if len(line) > shim_exec_server.MAX_LINE:
            raise CommandNotStarted("the command is too long")
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                return await cls._start_process(shim, line, descriptors)
        except TimeoutError as error:
            raise errors.ShimAway(_SILENT) from error

    @classmethod
    async def _start_process(cls, shim: Path, line: bytes, descriptors: Sequence[int]) -> Self:
        try:
            reader, writer = await _connect(shim, line, descriptors)
        except OSError as error:
            raise errors.ShimAway(f"no shim listens on {shim}") from error
        process = cls(reader, writer)
        try:
            response = await process._read_message()
            if "error" in response:
                kind = CommandNotStarted if response.get("running") else NotRunning
                raise kind(response["error"])
        except BaseException:
            await process.close()
            raise
        process.pid = response["pid"]
        return process

    async def wait(self) -> int:
        """Return the exit code (128 + n after signal n). Raises `ShimAway` if it is unknown."""
        return int((await self._read_message())["code"])

    async def _read_message(self) -> dict[str, Any]:
        try:
            line = await self._reader.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise errors.ShimAway
        response: dict[str, Any] = json.loads(line)
        return response

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def _connect(
    shim: Path, line: bytes, descriptors: Sequence[int]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = await _send(shim, line, descriptors)
    try:
        return await asyncio.open_unix_connection(sock=connection, limit=_LINE)
    except BaseException:
        connection.close()
        raise


async def _send(shim: Path, line: bytes, descriptors: Sequence[int]) -> socket.socket:
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(shim))
        # The descriptors go with the first byte, even if only a part of the line is sent.
        sent = socket.send_fds(connection, [line], list(descriptors))
        if sent < len(line):  # not an empty sendall: the shim may have replied and closed by now
            await loop.sock_sendall(connection, line[sent:])
    except BaseException:
        connection.close()
        raise
    return connection


class Attachment:
    """An attached container whose output arrives at the pipes given to `attach`.

    Call `close` in any case. `input` is the container's standard input or terminal, which the
    caller writes to and closes; None if the container has neither, or has `stdinOnce` and an
    earlier client got its input.
    """

    def __init__(self, connection: socket.socket, input_: exec_io.ProcessInput | None) -> None:
        self._connection = connection
        self.input = input_

    async def was_slow(self) -> bool:
        """Wait for the end. Return whether the shim disconnected us for reading too slowly."""
        loop = asyncio.get_running_loop()
        try:
            return b"slow" in await loop.sock_recv(self._connection, _LINE)
        except OSError:
            return False

    def close(self) -> None:
        if self.input is not None:
            self.input.close()
        self._connection.close()


async def attach(shim: Path, container: str, outputs: Sequence[int]) -> Attachment:
    """Attach to a container with copies of two write ends. The caller closes the originals.

    Raises `ShimAway`, `NotRunning`.
    """
    line = json.dumps({"n": 1, "do": "attach", "container": container}).encode() + b"\n"
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            return await _join(shim, line, outputs)
    except TimeoutError as error:
        raise errors.ShimAway(_SILENT) from error


async def _join(shim: Path, line: bytes, outputs: Sequence[int]) -> Attachment:
    try:
        connection = await _send(shim, line, outputs)
    except OSError as error:
        raise errors.ShimAway(f"no shim listens on {shim}") from error
    try:
        response, descriptors = await _receive(connection)
        if "error" in response:
            raise NotRunning(response["error"])
    except BaseException:
        connection.close()
        raise
    return Attachment(connection, exec_io.ProcessInput(descriptors[0]) if descriptors else None)


async def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the first reply, which fits into one message, and the descriptors sent with it."""
    loop = asyncio.get_running_loop()
    # A StreamReader would read the bytes and lose the descriptors that come with them.
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    try:
        flags = socket.MSG_CMSG_CLOEXEC
        content, descriptors, _, _ = socket.recv_fds(connection, _LINE, 1, flags)
        response: dict[str, Any] = json.loads(content.partition(b"\n")[0])
    except (OSError, ValueError) as error:
        raise errors.ShimAway from error
    return response, descriptors


async def run(
    shim: Path, container: str, argv: Sequence[str], *, timeout_s: float
) -> tuple[int, bytes]:
    """Run a command. Return its exit code and the first `OUTPUT` bytes of both streams.

    Raises TimeoutError after sending SIGKILL to its process group, and the errors of
    `ExecProcess.start`.
    """
    ours, theirs = exec_io.pipe_from()
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123, ASYNC230 - a device
        try:
            descriptors = [nothing.fileno(), theirs, theirs]
            command = ExecCommand(container, argv, hangup=signal.SIGKILL)
            process = await ExecProcess.start(shim, command, descriptors)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(theirs)
    try:
        async with asyncio.timeout(timeout_s):
            output = await _first(ours)
            return await process.wait(), output
    finally:
        ours.close()
        await process.close()


async def _first(output: exec_io.ProcessOutput) -> bytes:
    output_start = bytearray()
    while piece := await output.read():
        # Output beyond the limit is read and dropped: a full pipe would make the command wait.
        output_start += piece[: OUTPUT - len(output_start)]
    return bytes(output_start)
