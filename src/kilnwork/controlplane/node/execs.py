"""An exec or attach session, from the streams that the client opens to the Status at its end.

Used by `kubelet_streaming`, which has negotiated the stream protocol with the client. The process
of an exec belongs to the shim (`exec_link`), which sends it the hangup signal when the client
disconnects.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kilnwork.api import meta
from kilnwork.controlplane.node import (
    errors,
    exec_io,
    exec_link,
    exec_statuses,
    multiplexed_connection,
    streams_interface,
)
from kilnwork.kit import coroutines

T = TypeVar("T")

CREATION_S = 30.0
"""Timeout for a client to open its streams (the kubelet's streamCreationTimeout)."""

_MAX_RESIZE = 1024


class ExecStreams:
    """Streams of one exec session by kind, collected as the client opens them.

    `as_json`: the error stream carries a JSON Status instead of a text.
    """

    def __init__(self, wanted: Collection[str], *, as_json: bool) -> None:
        self.as_json = as_json
        self._missing = set(wanted)
        self._found: dict[str, multiplexed_connection.Stream] = {}
        self._complete = asyncio.Event()

    def take(self, stream: multiplexed_connection.Stream) -> bool:
        """Accept a stream that is requested and not open yet. Return False for any other."""
        if stream.kind not in self._missing:
            return False
        self._missing.discard(stream.kind)
        self._found[stream.kind] = stream
        if not self._missing:
            self._complete.set()
        return True

    async def all(
        self, connection: multiplexed_connection.StreamConnection
    ) -> Mapping[str, multiplexed_connection.Stream] | None:
        """Wait for all requested streams.

        Returns None if the client opens them too late or disconnects.
        """
        background = coroutines.BackgroundWork("streams")
        waits = {
            background.start("complete", self._complete.wait()),
            background.start("gone", connection.gone.wait()),
        }
        await asyncio.wait(waits, timeout=CREATION_S, return_when=asyncio.FIRST_COMPLETED)
        await background.stop()
        return self._found if self._complete.is_set() else None


class Ends(NamedTuple):
    """Both ends of the input and output of a process."""

    outputs: Mapping[str, exec_io.ProcessOutput]
    """Our ends of the outputs, by stream."""
    input: exec_io.ProcessInput | None
    theirs: tuple[int, int, int]
    """The three descriptors for the process."""

    def close_child_ends(self) -> None:
        """Close the descriptors for the process, which has copies by now."""
        for descriptor in set(self.theirs):
            os.close(descriptor)

    def close(self) -> None:
        for output in self.outputs.values():
            output.close()
        if self.input is not None:
            self.input.close()


def ends(kinds: Collection[str], *, tty: bool) -> Ends:
    """Return pipes for the wanted streams, or a terminal with `tty`. Other streams are null(4).

    Raises OSError without leaving anything open if descriptors run out.
    """
    if tty:
        terminal = exec_io.terminal()
        return Ends(
            {streams_interface.STDOUT: terminal.output}, terminal.input, (terminal.theirs,) * 3
        )
    outputs: dict[str, exec_io.ProcessOutput] = {}
    theirs: list[int] = []
    input_ = None
    with contextlib.ExitStack() as undo:
        if streams_interface.STDIN in kinds:
            end, input_ = exec_io.pipe_to()
            undo.callback(input_.close)
        else:
            end = _null()
        theirs.append(end)
        undo.callback(os.close, end)
        for kind in (streams_interface.STDOUT, streams_interface.STDERR):
            if kind in kinds:
                outputs[kind], end = exec_io.pipe_from()
                undo.callback(outputs[kind].close)
            else:
                end = _null()
            theirs.append(end)
            undo.callback(os.close, end)
        undo.pop_all()
    return Ends(outputs, input_, (theirs[0], theirs[1], theirs[2]))


def _null() -> int:
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSession:
    """Exec session whose client has opened all streams."""

    connection: multiplexed_connection.StreamConnection
    streams: Mapping[str, multiplexed_connection.Stream]
    tty: bool


async def execute(
    session: ExecSession, *, shim: Path, command: exec_link.ExecCommand
) -> meta.JsonObject | None:
    """Run a command. Return its final Status, or None if the client disconnected first."""
    own = ends(session.streams, tty=session.tty)
    try:
        try:
            starting = exec_link.ExecProcess.start(shim, command, own.theirs)
            process = await _unless_disconnected(session, starting)
        except errors.NodeError as error:
            return exec_statuses.failed(f"error executing command in container: {error}")
        finally:
            # The output does not end as long as we hold a write end.
            own.close_child_ends()
        if process is None:
            return None
        try:
            return await _copy_streams(session, own=own, end=_end(process))
        finally:
            await process.close()
    finally:
        own.close()


async def attach(session: ExecSession, *, shim: Path, container: str) -> meta.JsonObject | None:
    """Attach to a container until it ends. Return the final Status.

    Returns None if the client disconnected first.
    """
    pipes = ends((streams_interface.STDOUT, streams_interface.STDERR), tty=False)
    try:
        try:
            joining = exec_link.attach(shim, container, pipes.theirs[1:])
            attached = await _unless_disconnected(session, joining)
        except errors.NodeError as error:
            return exec_statuses.failed(f"error attaching to container: {error}")
        finally:
            pipes.close_child_ends()
        if attached is None:
            return None
        try:
            own = pipes._replace(input=attached.input)
            return await _copy_streams(session, own=own, end=_end_attached(attached))
        finally:
            attached.close()
    finally:
        pipes.close()


async def _unless_disconnected(session: ExecSession, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`, or cancel it and return None if the client disconnects.

    Do not use it for work that raises TimeoutError.
    """
    background = coroutines.BackgroundWork("exec")

    async def watch() -> None:
        await session.connection.gone.wait()
        # A timeout can be distinguished from a cancellation of this coroutine itself.
        patience.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as patience:
            background.start("gone", watch())
            return await work
    except TimeoutError:
        return None
    finally:
        await background.stop()


async def _copy_streams(
    session: ExecSession, *, own: Ends, end: Coroutine[Any, Any, meta.JsonObject]
) -> meta.JsonObject | None:
    """Copy all streams until everything has ended or the client disconnects."""
    opened, background = session.streams, coroutines.BackgroundWork("exec")
    if own.input is not None and streams_interface.STDIN in opened:
        background.start(
            "stdin", feed(opened[streams_interface.STDIN], own.input, last=not session.tty)
        )
    if own.input is not None and streams_interface.RESIZE in opened:
        background.start("resize", follow_size(opened[streams_interface.RESIZE], own.input))
    outputs = [
        background.start(kind, drain(output, opened.get(kind)))
        for kind, output in own.outputs.items()
    ]
    ending = background.start("end", end)
    # Output may arrive after the end of the process, so wait for both.
    finished = background.start("finished", asyncio.wait([ending, *outputs]))
    gone = background.start("gone", session.connection.gone.wait())
    try:
        await asyncio.wait({gone, finished}, return_when=asyncio.FIRST_COMPLETED)
        return ending.result() if finished.done() else None
    finally:
        await background.stop()


async def _end(process: exec_link.ExecProcess) -> meta.JsonObject:
    try:
        return exec_statuses.exited(await process.wait())
    except errors.ShimAway:
        return exec_statuses.failed("the end of the command was not seen: its parent has ended")


async def _end_attached(attached: exec_link.Attachment) -> meta.JsonObject:
    if await attached.was_slow():
        return exec_statuses.failed("error attaching to container: its output was read too slowly")
    return exec_statuses.success()


async def feed(
    stream: multiplexed_connection.Stream, end: exec_io.ProcessInput, *, last: bool
) -> None:
    """Copy what the client sends to the process.

    `last`: close the process's input when the client's stream ends.

    A terminal is not closed, since its output comes from the same descriptor.
    """
    while piece := await stream.read():
        if not await end.write(piece):
            break
    if last:
        end.close()
    while await stream.read():
        pass  # discard: unread data of this stream would block the other streams


async def drain(
    output: exec_io.ProcessOutput, stream: multiplexed_connection.Stream | None
) -> None:
    """Copy what the process writes to the client.

    Ends when the output ends or the client closes the stream.
    """
    while piece := await output.read():
        if stream is not None and not await stream.write(piece):
            break
    output.close()
    if stream is not None:
        stream.finish()


async def follow_size(
    stream: multiplexed_connection.Stream, terminal: exec_io.ProcessInput
) -> None:
    """Apply the window sizes that the client sends.

    They are a sequence of JSON objects such as `{"Width": 80, "Height": 24}`.
    """
    decoder, rest = json.JSONDecoder(), ""
    while piece := await stream.read():
        rest = (rest + piece.decode("latin-1")).lstrip()
        while rest:
            try:
                size, at = decoder.raw_decode(rest)
                terminal.resize(width=int(size["Width"]), height=int(size["Height"]))
            # The object may be incomplete: it is kept for the next piece.
            except (ValueError, KeyError, TypeError):
                break
            rest = rest[at:].lstrip()
        rest = rest[-_MAX_RESIZE:]
