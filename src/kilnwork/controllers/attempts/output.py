"""What attempts of executors print, copied to where the dispatcher keeps output.

Used by `driver` at the end of each attempt, and through `assembly` by whoever reads the output of
one that runs: it is followed while somebody reads it, so that an attempt costs one request for each
container unless it is looked at. Each piece is copied once, in the order in which it is seen.
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
"""Of each container: what is copied in addition at the end of an attempt. More than a kubelet keeps
(10 MiB, our node 20 MiB), since the end of it matters most."""

AGAIN_S = 1.0
"""Between tries to follow what cannot be followed, or was cut off."""

_Source = tuple[str, int]


class Outputs:
    """Of all attempts of one manager. `link`: where an executor's attempts report, by its name."""

    def __init__(self, link: Callable[[str], ports.ExecutorLink]) -> None:
        self._link = link
        self._crew = coroutines.Crew("outputs")
        self._copies: dict[attempts.AttemptRef, _Copy] = {}
        self._readers: collections.Counter[attempts.AttemptRef] = collections.Counter()
        self._followers: dict[attempts.AttemptRef, asyncio.Task[None]] = {}

    def begin(self, executor: port.Executor, attempt: port.Attempt) -> None:
        """There is an attempt, which has printed nothing yet as far as is known."""
        if isinstance(executor, port.ReadsLogs):
            link = self._link
            self._copies[attempt.ref] = _Copy(executor, attempt, lambda: link(executor.name))
            self._follow(attempt.ref)

    def changed(self, ref: attempts.AttemptRef) -> None:
        """Something is new about an attempt: a container may have started."""
        copy = self._copies.get(ref)
        if copy is not None:
            copy.changed.set()

    async def finish(self, ref: attempts.AttemptRef) -> None:
        """Copy what is missing of an attempt that is over. What cannot be had is missing: it costs
        the output, not the outcome."""
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
        """Its outcome is stored."""
        self._copies.pop(ref, None)

    async def catch_up(self, ref: attempts.AttemptRef) -> None:
        """Copy what an attempt has printed until now, if we have it. Raises KubeError."""
        copy = self._copies.get(ref)
        if copy is not None and ref not in self._followers:
            await copy.catch_up(max_bytes=None, is_last=False)

    @contextlib.asynccontextmanager
    async def following(self, ref: attempts.AttemptRef) -> AsyncIterator[None]:
        """Copy what an attempt prints as it does, also of one that is not ours yet."""
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
        """Follow nothing any more."""
        await self._crew.stop()

    def _follow(self, ref: attempts.AttemptRef) -> None:
        copy = self._copies.get(ref)
        if copy is not None and self._readers[ref] and ref not in self._followers:
            self._followers[ref] = self._crew.start(f"follow {ref}", copy.follow())

    def _stop(self, ref: attempts.AttemptRef) -> None:
        follower = self._followers.pop(ref, None)
        if follower is not None:
            follower.cancel()


class _Copy:
    """Of one attempt: how far each of its outputs has been copied."""

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
        """Until cancelled."""
        crew = coroutines.Crew(f"output of {self._attempt.ref}")
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
                            begun[source] = crew.start(output.source, work)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), AGAIN_S)
        finally:
            await crew.stop()

    async def _follow_one(self, output: port.AttemptOutput) -> None:
        """To its end, or to where it is cut off: then it is tried again."""
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
        """Keep it; of several outputs only whole lines, with their names. Returns the rest."""
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
            # What an earlier manager has kept may be in another order.
            link.discard_log(ref)
        link.log(ref, offset=self._size, data=data)
        self._size += len(data)
