"""Supervisor of the shim: keeps a shim running and a link to it open.

Used by `local_node`. When the shim dies, another one is started at once and adopts the running
containers. `on_opened` is called with all containers that the shim knows, before any `on_ended`.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

from kilnwork.controlplane.node import errors, shim, shim_container, shim_link
from kilnwork.kit import coroutines, locks, processes

log = logging.getLogger(__name__)

OnOpened = Callable[[list[shim_container.ContainerRecord]], None]

_AGAIN_S = 1.0
_LEFT_S = 5.0
_REAP_S = 0.01


class Supervisor:
    """Keeps the shim of one directory running, and a link to that shim open."""

    def __init__(
        self,
        directory: Path,
        socket_path: Path,
        *,
        on_ended: shim_link.OnEnded,
        on_opened: OnOpened,
        patience_s: float = shim.PATIENCE_S,
    ) -> None:
        self._directory = directory
        self._socket_path = socket_path
        self._on_ended = on_ended
        self._on_opened = on_opened
        self._patience_s = patience_s
        self._background = coroutines.BackgroundWork("shim supervisor")
        self._link: shim_link.ShimLink | None = None
        self._pids: set[int] = set()
        self._shim: processes.ProcessId | None = None
        """The running shim, which may have been launched by an earlier server and is no child of
        ours then."""

    @property
    def link(self) -> shim_link.ShimLink:
        """Return the open link. Raises `ShimAway` while there is no link."""
        if self._link is None or self._link.closed.is_set():
            raise errors.ShimAway
        return self._link

    async def start(self) -> None:
        """Find or start the shim. Raises `ShimAway` if none can be started."""
        await self._open()
        self._background.start("keep", self._keep())

    async def stop(self, *, grace_s: float) -> None:
        """Stop all containers, then the shim."""
        await self._background.stop()
        try:
            link = self.link
            await link.leave(grace_s=grace_s)
            await asyncio.wait_for(link.closed.wait(), grace_s + _LEFT_S)
        except (errors.NodeError, TimeoutError):
            # On SIGTERM, too, it stops its containers before it ends.
            self._terminate()
        if self._link is not None:
            await self._link.close()
        for _ in range(int(_LEFT_S / _REAP_S)):
            self._reap()
            if not self._pids and (self._shim is None or not self._shim.alive()):
                return
            await asyncio.sleep(_REAP_S)
        log.error("shim did not end", extra={"pids": sorted(self._pids), "shim": self._shim})

    async def detach(self) -> None:
        """Leave shim and containers running, like a server that is killed."""
        await self._background.stop()
        if self._link is not None:
            await self._link.close()

    async def _keep(self) -> None:
        while True:
            if self._link is not None:
                await self._link.closed.wait()
                log.warning("shim has gone away, starting another")
                await self._link.close()
                self._link = None
            self._reap()
            try:
                await self._open()
            except errors.ShimAway as error:
                log.exception("no shim", extra={"error": str(error)})
                await asyncio.sleep(_AGAIN_S)

    async def _open(self) -> None:
        opened = await shim_link.open_or_launch(
            self._directory, self._socket_path, patience_s=self._patience_s
        )
        if opened.pid is not None:
            self._pids.add(opened.pid)
        self._link = opened.link
        self._shim = self._find_shim()
        self._on_opened(opened.known)
        opened.link.report_ends(self._on_ended)

    def _find_shim(self) -> processes.ProcessId | None:
        """Return the running shim by its lock, as an earlier server may have launched it."""
        lock = self._directory / shim.LOCK
        # The pid of a killed shim stays in the file, and may belong to another process by now.
        holder = locks.read_owner(lock) if locks.is_locked(lock) else None
        return None if holder is None else processes.identify(holder)

    def _terminate(self) -> None:
        # Without a link it may be another one than before.
        self._shim = self._find_shim()
        found = set() if self._shim is None else {self._shim.pid}
        for pid in self._pids | found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _reap(self) -> None:
        self._pids = {pid for pid in self._pids if not shim_link.reap(pid)}
