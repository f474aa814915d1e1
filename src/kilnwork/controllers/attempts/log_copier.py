"""Copies of the output of executors' attempts, made to where the dispatcher keeps output.

Used by `reconciler` at the end of each attempt, and through `assembly` by readers of the output of
a running attempt: output is followed only while a client reads it, so that other attempts cost one
request for each container. Each piece is copied once, in the order in which it is seen.
"""

import asyncio
import collections
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from kilnwork.api import attempts
from kilnwork.controllers import ports
from kilnwork.executors import port
from kilnwork.kit import coroutines
from kilnwork.kube import errors

log = logging.getLogger(__name__)

MAX_BYTES = 32 << 20
"""Maximum output of each container that is copied at the end of an attempt. It is more than a
kubelet keeps (10 MiB; our node 20 MiB), since the last lines matter most."""

AGAIN_S = 1.0
"""Interval in seconds at which new outputs are looked for while an attempt is followed, and delay
after a failure or a lost connection."""

_Source = tuple[str, int]


class OutputCopies:
    """The output copies of all attempts of a manager. `link` returns the link of an executor."""

    def __init__(self, link: Callable[[str], ports.ExecutorLink]) -> None:
        self._link = link
        self._background = coroutines.BackgroundWork("outputs")
        self._copies: dict[attempts.AttemptRef, _OutputCopy] = {}
        self._readers: collections.Counter[attempts.AttemptRef] = collections.Counter()
        self._followers: dict[attempts.AttemptRef, asyncio.Task[None]] = {}

    def begin(self, executor: port.Executor, attempt: port.Attempt) -> None:
        """Register an attempt of which no output has been copied yet."""
        if isinstance(executor, port.ReadsLogs):
            link = self._link
            self._copies[attempt.ref] = _OutputCopy(executor, attempt, lambda: link(executor.name))
            self._follow(attempt.ref)

    def changed(self, ref: attempts.AttemptRef) -> None:
        """Follow the outputs of containers that may have started, after a change of an attempt."""
        copy = self._copies.get(ref)
        if copy is not None:
            copy.changed.set()

    async def finish(self, ref: attempts.AttemptRef) -> None:
        """Copy the rest of the output of a finished attempt: all that has not been copied yet.

        Output that cannot be read is lost, without effect on the outcome.
        """
        copy = self._copies.get(ref)
        if copy is None:
            return
        self._stop(ref)
        try:
            await copy.catch_up(max_bytes=MAX_BYTES, is_last=True)
        except errors.KubeError as error:
            log.warning("output was not kept", extra={"attempt": str(ref), "error": str(error)})
        except Exception:
            log.exception("output was not kept", extra={"attempt": str(ref)})

    def forget(self, ref: attempts.AttemptRef) -> None:
        """Forget an attempt whose outcome is stored."""
        self._copies.pop(ref, None)

    async def catch_up(self, ref: attempts.AttemptRef) -> None:
        """Copy the current output of an attempt. Does nothing if the attempt is not registered, or
        if its output is being followed. Raises KubeError.
        """
        copy = self._copies.get(ref)
        if copy is not None and ref not in self._followers:
            await copy.catch_up(max_bytes=None, is_last=False)

    @contextlib.asynccontextmanager
    async def following(self, ref: attempts.AttemptRef) -> AsyncIterator[None]:
        """Copy the output of an attempt as it is written, even if the attempt is not registered
        yet."""
        self._readers[ref] += 1
        self._follow(ref)
        try:
            yield
        finally:
            self._readers[ref] -= 1
            if not self._readers[ref]:
                del self._readers[ref]
                self._stop(ref)

    async def stop(self) -> None:
        """Stop following the output of all attempts."""
        await self._background.stop()

    def _follow(self, ref: attempts.AttemptRef) -> None:
        copy = self._copies.get(ref)
        if copy is not None and self._readers[ref] and ref not in self._followers:
            self._followers[ref] = self._background.start(f"follow {ref}", copy.follow())

    def _stop(self, ref: attempts.AttemptRef) -> None:
        follower = self._followers.pop(ref, None)
        if follower is not None:
            follower.cancel()


class _OutputCopy:
    """A copy in progress of the outputs of one attempt, with the copied length of each output."""

    def __init__(
        self,
        executor: port.ReadsLogs,
        attempt: port.Attempt,
        link: Callable[[], ports.ExecutorLink],
    ) -> None:
        self.changed = asyncio.Event()
        self._executor = executor
        self._attempt = attempt
        self._link = link
        self._copied: collections.Counter[_Source] = collections.Counter()
        self._locks: dict[_Source, asyncio.Lock] = {}
        self._size = 0

    async def catch_up(self, *, max_bytes: int | None, is_last: bool) -> None:
        for output in await self._executor.outputs(self._attempt):
            await self._read(output, follow=False, max_bytes=max_bytes, is_last=is_last)

    async def follow(self) -> None:
        """Follow all outputs of the attempt until cancelled."""
        background = coroutines.BackgroundWork(f"output of {self._attempt.ref}")
        begun: dict[_Source, asyncio.Task[None]] = {}
        try:
            while True:
                self.changed.clear()
                with contextlib.suppress(errors.KubeError):
                    for output in await self._executor.outputs(self._attempt):
                        source = (output.source, output.life)
                        known = begun.get(source)
                        if known is None or (known.done() and not output.is_over):
                            work = self._follow_one(output)
                            begun[source] = background.start(output.source, work)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), AGAIN_S)
        finally:
            await background.stop()

    async def _follow_one(self, output: port.AttemptOutput) -> None:
        """Follow one output to its end; retry after a lost connection."""
        try:
            await self._read(output, follow=True, max_bytes=None, is_last=False)
        except errors.KubeError as error:
            await asyncio.sleep(AGAIN_S)
            about = {"attempt": str(self._attempt.ref), "error": str(error)}
            log.info("output cannot be followed", extra=about)

    async def _read(
        self, output: port.AttemptOutput, *, follow: bool, max_bytes: int | None, is_last: bool
    ) -> None:
        source = (output.source, output.life)
        async with self._locks.setdefault(source, asyncio.Lock()):
            how = port.LogRange(skip=self._copied[source], follow=follow, max_bytes=max_bytes)
            rest = b""
            async with contextlib.aclosing(
                self._executor.logs(self._attempt, output, how)
            ) as pieces:
                async for piece in pieces:
                    rest = self._keep(output, rest + piece)
            if rest and is_last:
                self._keep(output, rest + b"\n")

    def _keep(self, output: port.AttemptOutput, data: bytes) -> bytes:
        """Store output of a container, and return its incomplete last line, which is stored later.

        With several containers, only whole lines are stored, prefixed with the container's name.
        """
        rest = b""
        kept = data
        if output.name:
            whole, newline, rest = data.rpartition(b"\n")
            data = whole + newline
            prefix = f"[{output.name}] ".encode()
            kept = b"".join(prefix + line for line in data.splitlines(keepends=True))
        if data:
            self._append(output, kept)
            self._copied[output.source, output.life] += len(data)
        return rest

    def _append(self, output: port.AttemptOutput, data: bytes) -> None:
        link, ref = self._link(), self._attempt.ref
        if not self._size and (output.name or output.life):
            # An earlier manager may have stored the outputs in another order.
            link.discard_log(ref)
        link.log(ref, offset=self._size, data=data)
        self._size += len(data)
