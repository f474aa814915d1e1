"""Client of the shim: launches the shim, and has it start, stop and forget containers.

Used by `shim_supervisor` and `reconciler`. A link is a connection to one shim. When it closes, the
shim has ended or serves another node, and the owner opens a new link. `shim_supervisor` keeps the
shim running.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import kilnwork
from kilnwork.controlplane.node import errors, shim, shim_container
from kilnwork.kit import coroutines

_OPEN_S = 10.0
_LOOK_S = 0.005
_LINE = 64 * 1024 * 1024
_REQUEST_S = 30.0

OnEnded = Callable[[shim_container.ContainerRecord], None]


class OpenedLink(NamedTuple):
    """A new link to the shim."""

    link: "ShimLink"
    known: list[shim_container.ContainerRecord]
    """The containers that the shim knows."""
    pid: int | None
    """Pid of the shim if we have launched it, else None."""


def launch(directory: Path, socket_path: Path, *, patience_s: float = shim.PATIENCE_S) -> int:
    """Start a shim in a session of its own. Return its pid; the caller must call `reap`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = [sys.executable, "-S", "-P", "-m", "kilnwork.controlplane.node.shim"]
    argv += [str(directory), str(socket_path), f"{patience_s:g}"]
    source = Path(kilnwork.__file__).parent.parent
    log = (str(directory / "shim.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return os.posix_spawn(
        sys.executable,
        argv,
        # No other variable: containers get their environment through the socket.
        {"PYTHONPATH": str(source)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, *log),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        # In its own session: signals for our terminal (Ctrl-C) must not end the containers.
        setsid=True,
    )


def reap(pid: int) -> bool:
    """Collect the exit status of a shim that we have launched. Return whether it has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


class ShimLink:
    """A connection to a running shim.

    Records of containers that end are kept until `report_ends` is called. Every request raises
    `errors.ShimAway` if the shim does not reply.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._background = coroutines.BackgroundWork("shim link")
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._unreported: list[shim_container.ContainerRecord] = []
        self._on_ended: OnEnded = self._unreported.append
        self.closed = asyncio.Event()

    @classmethod
    async def open(cls, socket_path: Path) -> Self:
        """Connect to a shim. Raises `errors.ShimAway` if no process listens on the socket."""
        try:
            # The reply to hello has every container in one line; the default limit is 64 KiB.
            reader, writer = await asyncio.open_unix_connection(str(socket_path), limit=_LINE)
        except OSError as error:
            raise errors.ShimAway(f"no shim listens on {socket_path}") from error
        link = cls(reader, writer)
        link._background.start("reader", link._read())
        return link

    def report_ends(self, on_ended: OnEnded) -> None:
        """Call `on_ended` for each container that has ended since the reply to `hello`, or ends
        later.

        Call this after the reply is processed: an end may arrive together with it, and in the reply
        the container still runs.
        """
        self._on_ended = on_ended
        for record in self._unreported:
            on_ended(record)
        self._unreported.clear()

    async def hello(self) -> list[shim_container.ContainerRecord]:
        """Return all containers that the shim knows.

        Raises `errors.WrongShim` if the shim speaks another protocol.
        """
        reply = await self._ask("hello")
        if reply["version"] != shim.PROTOCOL:
            raise errors.WrongShim(f"the running shim speaks protocol {reply['version']}")
        return [shim_container.ContainerRecord(**record) for record in reply["containers"]]

    async def start(self, order: shim_container.StartRequest) -> shim_container.ContainerRecord:
        """Start a container, unless the shim knows its id already. Return its record.

        The record says whether the program failed to start.
        """
        reply = await self._ask("start", **order._asdict())
        return shim_container.ContainerRecord(**reply["container"])

    async def stop(self, container_id: str, *, grace_s: float) -> None:
        """Stop a container: SIGTERM now, and SIGKILL to all its processes after the grace period.

        The end of the container is reported like any other.
        """
        await self._ask("stop", id=container_id, grace_s=grace_s)

    async def forget(self, container_id: str) -> None:
        """Drop the record of a container. Raises `errors.ShimRefused` if it has not ended."""
        await self._ask("forget", id=container_id)

    async def leave(self, *, grace_s: float) -> None:
        """Stop all containers, then the shim itself. `closed` is set when the shim is gone."""
        await self._ask("leave", grace_s=grace_s)

    async def close(self) -> None:
        """Close the link. The shim keeps running."""
        await self._background.stop()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        if self.closed.is_set():
            raise errors.ShimAway
        self._number += 1
        reply = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = reply
        request = {"n": self._number, "do": do, **fields}
        self._writer.write(json.dumps(request).encode() + b"\n")
        try:
            result: dict[str, Any] = await asyncio.wait_for(reply, _REQUEST_S)
        except TimeoutError as error:
            raise errors.ShimAway(
                f"the shim did not reply to {do} within {_REQUEST_S} s"
            ) from error
        finally:
            self._waiting.pop(request["n"], None)
        if "error" in result:
            raise errors.ShimRefused(f"the shim refused {do}: {result['error']}")
        return result

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                if message.get("event") == "ended":
                    self._on_ended(shim_container.ContainerRecord(**message["container"]))
                elif (reply := self._waiting.get(message["n"])) and not reply.done():
                    reply.set_result(message)
        except OSError:
            pass
        finally:
            self.closed.set()
            for reply in self._waiting.values():
                if not reply.done():
                    reply.set_exception(errors.ShimAway())


async def open_or_launch(directory: Path, socket_path: Path, *, patience_s: float) -> OpenedLink:
    """Return a link to the shim of a directory; launch a shim if none runs. Raises `ShimAway`.

    A shim that is about to end, or has another version, is replaced once it has ended.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _OPEN_S
    pid: int | None = None
    while True:
        try:
            link, known = await _greet(socket_path)
            return OpenedLink(link, known, pid)
        except errors.ShimAway as error:
            if loop.time() > deadline:
                raise errors.ShimAway(
                    f"the shim does not start: see {directory}/shim.log"
                ) from error
        if pid is None or reap(pid):  # it exits if another shim still locks the directory
            pid = launch(directory, socket_path, patience_s=patience_s)
        await asyncio.sleep(_LOOK_S)


async def _greet(socket_path: Path) -> tuple[ShimLink, list[shim_container.ContainerRecord]]:
    link = await ShimLink.open(socket_path)
    try:
        return link, await _hello_or_leave(link)
    except BaseException:
        await link.close()
        raise


async def _hello_or_leave(link: ShimLink) -> list[shim_container.ContainerRecord]:
    try:
        return await link.hello()
    except errors.WrongShim:
        # The containers end with their shim: they cannot be taken over from another version. A shim
        # that does not leave is asked again, since it keeps the lock.
        with contextlib.suppress(errors.NodeError, TimeoutError):
            await link.leave(grace_s=shim.LEAVE_GRACE_S)
            await asyncio.wait_for(link.closed.wait(), shim.LEAVE_GRACE_S * 2)
        raise
