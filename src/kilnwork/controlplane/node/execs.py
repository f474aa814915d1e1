"""One exec or attach, from the streams that a client opens to the Status at its end.

Used by `exec_paths`, which has agreed with the client on how streams travel. The process belongs to
the shim (`exec_link`); a client that goes away hangs up on it.
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
    streams,
    streams_io,
)
from kilnwork.kit import coroutines

T = TypeVar("T")

CREATION_S = 30.0
"""How long a client may take to open its streams (the kubelet's streamCreationTimeout)."""

_MAX_RESIZE = 1024


class ExecStreams:
    """The streams of one session, by kind, as the client opens them.

    `as_json`: the error stream carries a Status, not a text.
    """

    def __init__(self, wanted: Collection[str], *, as_json: bool) -> None:
        self.as_json = as_json
        self._missing = set(wanted)
        self._found: dict[str, streams_io.Stream] = {}
        self._complete = asyncio.Event()

    def take(self, stream: streams_io.Stream) -> bool:
        """Keep one that was asked for and is not there yet; refuse any other."""
        if stream.kind not in self._missing:
            return False
        self._missing.discard(stream.kind)
        self._found[stream.kind] = stream
        if not self._missing:
            self._complete.set()
        return True

    async def all(
        self, connection: streams_io.Connection
    ) -> Mapping[str, streams_io.Stream] | None:
        """Everything that was asked for; None if the client did not open it in time, or left."""
        background = coroutines.BackgroundWork("streams")
        waits = {
            background.start("complete", self._complete.wait()),
            background.start("gone", connection.gone.wait()),
        }
        await asyncio.wait(waits, timeout=CREATION_S, return_when=asyncio.FIRST_COMPLETED)
        await background.stop()
        return self._found if self._complete.is_set() else None


class Ends(NamedTuple):
    """Our ends of a process's input and output by stream, and the three to give away."""

    outputs: Mapping[str, exec_io.Output]
    input: exec_io.Input | None
    theirs: tuple[int, int, int]

    def give_away(self) -> None:
        """Close what the process has copies of by now."""
        for descriptor in set(self.theirs):
            os.close(descriptor)

    def close(self) -> None:
        for output in self.outputs.values():
            output.close()
        if self.input is not None:
            self.input.close()


def ends(kinds: Collection[str], *, tty: bool) -> Ends:
    """Pipes for what the client wants, a terminal with `tty`; what is not wanted is null(4).

    Raises OSError when descriptors run out, with nothing left open.
    """
    if tty:
        terminal = exec_io.terminal()
        return Ends({streams.STDOUT: terminal.output}, terminal.input, (terminal.theirs,) * 3)
    outputs: dict[str, exec_io.Output] = {}
    theirs: list[int] = []
    input_ = None
    with contextlib.ExitStack() as undo:
        if streams.STDIN in kinds:
            end, input_ = exec_io.pipe_to()
            undo.callback(input_.close)
        else:
            end = _null()
        theirs.append(end)
        undo.callback(os.close, end)
        for kind in (streams.STDOUT, streams.STDERR):
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
    """A client whose streams are all there."""

    connection: streams_io.Connection
    streams: Mapping[str, streams_io.Stream]
    tty: bool


async def execute(
    session: ExecSession, *, shim: Path, command: exec_link.Command
) -> meta.JsonObject | None:
    """Run a command; the Status of its end, None if the client did not wait for it."""
    own = ends(session.streams, tty=session.tty)
    try:
        try:
            starting = exec_link.Process.start(shim, command, own.theirs)
            process = await _while_there(session, starting)
        except errors.NodeError as error:
            return exec_statuses.failed(f"error executing command in container: {error}")
        finally:
            own.give_away()
        if process is None:
            return None
        try:
            return await _carry(session, own=own, end=_end(process))
        finally:
            await process.close()
    finally:
        own.close()


async def attach(session: ExecSession, *, shim: Path, container: str) -> meta.JsonObject | None:
    """Join a container that runs until it ends; the Status, None if the client left before."""
    pipes = ends((streams.STDOUT, streams.STDERR), tty=False)
    try:
        try:
            joining = exec_link.attach(shim, container, pipes.theirs[1:])
            attached = await _while_there(session, joining)
        except errors.NodeError as error:
            return exec_statuses.failed(f"error attaching to container: {error}")
        finally:
            pipes.give_away()
        if attached is None:
            return None
        try:
            own = pipes._replace(input=attached.input)
            return await _carry(session, own=own, end=_end_attached(attached))
        finally:
            attached.close()
    finally:
        pipes.close()


async def _while_there(session: ExecSession, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; None, and its end, if the client leaves before. Not for TimeoutErrors."""
    background = coroutines.BackgroundWork("exec")

    async def watch() -> None:
        await session.connection.gone.wait()
        patience.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as patience:
            background.start("gone", watch())
            return await work
    except TimeoutError:
        return None
    finally:
        await background.stop()


async def _carry(
    session: ExecSession, *, own: Ends, end: Coroutine[Any, Any, meta.JsonObject]
) -> meta.JsonObject | None:
    """Copy all ways until everything has ended or the client is gone."""
    found, background = session.streams, coroutines.BackgroundWork("exec")
    if own.input is not None and streams.STDIN in found:
        background.start("stdin", feed(found[streams.STDIN], own.input, last=not session.tty))
    if own.input is not None and streams.RESIZE in found:
        background.start("resize", follow_size(found[streams.RESIZE], own.input))
    outputs = [
        background.start(kind, drain(output, found.get(kind)))
        for kind, output in own.outputs.items()
    ]
    ending = background.start("end", end)
    finished = background.start("finished", asyncio.wait([ending, *outputs]))
    gone = background.start("gone", session.connection.gone.wait())
    try:
        await asyncio.wait({gone, finished}, return_when=asyncio.FIRST_COMPLETED)
        return ending.result() if finished.done() else None
    finally:
        await background.stop()


async def _end(process: exec_link.Process) -> meta.JsonObject:
    try:
        return exec_statuses.exited(await process.wait())
    except errors.ShimAway:
        return exec_statuses.failed("the end of the command was not seen: its parent has ended")


async def _end_attached(attached: exec_link.Attachment) -> meta.JsonObject:
    if await attached.was_slow():
        return exec_statuses.failed("error attaching to container: its output was read too slowly")
    return exec_statuses.success()


async def feed(stream: streams_io.Stream, end: exec_io.Input, *, last: bool) -> None:
    """What the client sends, to the process; `last`: its end is the end of the input too.

    A terminal stays open, since its output comes from the same place.
    """
    while piece := await stream.read():
        if not await end.write(piece):
            break
    if last:
        end.close()
    while await stream.read():
        pass  # no process reads it any more, and other streams must not wait behind it


async def drain(output: exec_io.Output, stream: streams_io.Stream | None) -> None:
    """What the process writes, to the client; a client that wants no more closes it."""
    while piece := await output.read():
        if stream is not None and not await stream.write(piece):
            break
    output.close()
    if stream is not None:
        stream.finish()


async def follow_size(stream: streams_io.Stream, terminal: exec_io.Input) -> None:
    """Sizes of the client's window: JSON objects `{"Width": 80, "Height": 24}` in a row."""
    decoder, rest = json.JSONDecoder(), ""
    while piece := await stream.read():
        rest = (rest + piece.decode("latin-1")).lstrip()
        while rest:
            try:
                size, at = decoder.raw_decode(rest)
                terminal.resize(width=int(size["Width"]), height=int(size["Height"]))
            except (ValueError, KeyError, TypeError):
                break
            rest = rest[at:].lstrip()
        rest = rest[-_MAX_RESIZE:]
