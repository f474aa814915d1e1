"""The agent's side of the zygote: has slots forked and killed, and reports their ends.

Used by `agent` and `slots`. `__main__` forked the first zygote. When a zygote dies, its slots die
with it, the agent kills the processes that they leave behind, and the next fork starts a new
zygote. When several zygotes in a row die before they are ready, the worker shuts down and logs what
they wrote.
"""

import asyncio
import collections
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable

from kilnwork.kit import coroutines
from kilnwork.worker import errors, orphans, outcome_rules, reaper, zygote_link

log = logging.getLogger(__name__)

MAX_FAILED_STARTS = 3
"""Number of failed starts in a row after which the worker shuts down. One may be due to a stray
kill or a moment without memory; the dispatcher pauses between starts.
"""

START_S = 60.0
"""Maximum seconds until a zygote is ready; after that it is killed. A zygote only imports some
modules, but the machine may be very busy.
"""

_LAST_BYTES = 16 * 1024
_MARKER = "zygote"
_BROKEN = "the process that starts slots ended with code {}: the worker's log says why"

OnEnded = Callable[[zygote_link.SlotEnded], None]
OnBroken = Callable[[errors.NoZygote], None]
_Packet = tuple[zygote_link.ForkSlot | zygote_link.KillSlot, tuple[int, ...]]


class ZygoteSupervisor:
    """Supervisor of the zygote; see the module. Belongs to one event loop.

    `on_ended` is called once for every slot that ends, `on_broken` when zygotes do not start.
    """

    def __init__(
        self,
        *,
        background: coroutines.BackgroundWork,
        waiter: reaper.Reaper,
        orphan_processes: orphans.Orphans,
        on_ended: OnEnded,
        on_broken: OnBroken,
    ) -> None:
        self._background = background
        self._reaper = waiter
        self._orphans = orphan_processes
        self._on_ended = on_ended
        self._on_broken = on_broken
        self._zygote: zygote_link.ZygoteHandle | None = None
        self._count = 0
        self._ready = False
        self._failed_starts = 0
        self._alive: dict[bytes, int] = {}
        self._unsent: collections.deque[_Packet] = collections.deque()
        self._closing = False
        self._over = asyncio.Event()  # set when the newest zygote has exited

    @property
    def closing(self) -> bool:
        """Return whether `close` was called."""
        return self._closing

    def adopt(self, zygote: zygote_link.ZygoteHandle) -> None:
        """Use an existing zygote from now on.

        Call in the turn of the event loop in which the zygote was started, or before the loop's
        first turn.
        """
        self._zygote = zygote
        self._ready = False
        self._over = asyncio.Event()
        self._count += 1
        zygote.link.setblocking(False)
        root = self._orphans.register(zygote.pid, marker=f"{_MARKER}-{self._count}")
        # Before the next sweep, which would otherwise drop the zygote's exit status.
        ended = self._reaper.watch(zygote.pid)
        asyncio.get_running_loop().add_reader(zygote.link, self._readable, zygote)
        self._background.start("zygote", self._keep(zygote, ended, root))
        asyncio.get_running_loop().call_later(START_S, self._overdue, zygote.pid, ended)

    def fork_slot(self, slot: bytes, secret: str, descriptors: tuple[int, ...]) -> None:
        """Have the zygote fork a slot; close the descriptors in this process. Raises OSError."""
        if self._zygote is None:
            try:
                self.adopt(_execute())
            except OSError:
                _close(descriptors)
                raise
        self._alive[slot] = 0
        self._send(zygote_link.ForkSlot(slot, secret), descriptors)

    def pid(self, slot: bytes) -> int:
        """Return the pid of a slot, or 0 while it has no process."""
        return self._alive.get(slot, 0)

    def kill(self, slot: bytes) -> None:
        """Have the zygote send SIGKILL to a slot that was forked."""
        if slot in self._alive:
            # By name, since the pid may not be known yet; the order arrives after that of the fork.
            self._send(zygote_link.KillSlot(slot))

    async def close(self, *, timeout_s: float) -> None:
        """Have the zygote kill all slots and exit, and wait for that up to `timeout_s`.

        Fork no slot afterwards.
        """
        self._closing = True
        if self._zygote is not None:
            # Orders that were not sent would only start slots that are to be killed.
            asyncio.get_running_loop().remove_writer(self._zygote.link)
            # Only this direction: the zygote sees that the link has ended, and can still report
            # ends of slots.
            self._zygote.link.shutdown(socket.SHUT_WR)
            try:
                async with asyncio.timeout(timeout_s):
                    await self._over.wait()
            except TimeoutError:
                return

    async def _keep(
        self,
        zygote: zygote_link.ZygoteHandle,
        ended: asyncio.Future[reaper.ProcessExit],
        root: orphans.RootProcess,
    ) -> None:
        """Wait until the zygote has exited, and report the ends of its slots.

        The slots are dead then, and this process becomes the parent of the processes that they
        left.
        """
        over = self._over
        code, _ = await ended
        # First: the zygote may have reported ends of slots, with their codes, before it died.
        self._read_all(zygote)
        loop = asyncio.get_running_loop()
        loop.remove_reader(zygote.link)
        loop.remove_writer(zygote.link)
        zygote.link.close()
        self._zygote = None
        while self._unsent:
            _close(self._unsent.popleft()[1])
        message = self._explain(zygote, code)
        # All this precedes the await: slots that are requested meanwhile belong to the next zygote.
        remaining, self._alive = self._alive, {}
        proof = await self._orphans.clear(root)
        for slot in remaining:
            self._on_ended(zygote_link.SlotEnded(slot, -signal.SIGKILL, message, proof))
        over.set()
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._on_broken(errors.NoZygote(message))

    def _explain(self, zygote: zygote_link.ZygoteHandle, code: int) -> str:
        """Return the message for the slots that died with a zygote; count a failed start."""
        if self._ready:
            return "" if code < 0 or self._closing else _BROKEN.format(code)
        error_text = _pass_on_errors(zygote)
        if self._closing:
            return ""
        message = _not_started(code, error_text)
        self._failed_starts += 1
        log.error("slots cannot be started", extra={"why": message})
        return message

    def _overdue(self, pid: int, ended: asyncio.Future[reaper.ProcessExit]) -> None:
        """Kill a zygote that has not become ready in time; it then counts as a zygote that died."""
        # Once `ended` is done, another process may have its pid, even before `_keep` resumes.
        if not ended.done() and not self._ready:
            log.error("the process that starts slots is not ready", extra={"after_s": START_S})
            os.kill(pid, signal.SIGKILL)

    def _readable(self, zygote: zygote_link.ZygoteHandle) -> None:
        if not self._read_all(zygote):
            asyncio.get_running_loop().remove_reader(zygote.link)  # its exit will be reported

    def _read_all(self, zygote: zygote_link.ZygoteHandle) -> bool:
        while True:
            try:
                report = zygote_link.receive_report(zygote.link)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if report is None:
                return False
            if isinstance(report, zygote_link.Ready):
                self._ready = True
                self._failed_starts = 0
                _pass_on_errors(zygote)
            # The report is about a slot of an earlier zygote, or one whose end is known.
            elif report.slot not in self._alive:
                continue
            elif isinstance(report, zygote_link.SlotForked):
                self._alive[report.slot] = report.pid
            else:
                del self._alive[report.slot]
                self._on_ended(report)

    def _send(
        self, order: zygote_link.ForkSlot | zygote_link.KillSlot, descriptors: tuple[int, ...] = ()
    ) -> None:
        self._unsent.append((order, descriptors))
        self._push()

    def _push(self) -> None:
        if self._zygote is None:
            return
        loop, link = asyncio.get_running_loop(), self._zygote.link
        while self._unsent:
            order, descriptors = self._unsent[0]
            try:
                zygote_link.send(link, order, descriptors)
            except BlockingIOError:
                # If the callback is registered already, this only replaces it.
                loop.add_writer(link, self._push)
                return
            except OSError:
                break  # the zygote is dead, and its exit will be handled soon
            self._unsent.popleft()
            # The message has its own references to the open files.
            _close(descriptors)
        loop.remove_writer(link)


def _execute() -> zygote_link.ZygoteHandle:
    made: list[int] = []
    own_end, zygote_end = zygote_link.make_pair()
    try:
        made.append(zygote_link.open_errors_file())
        made.append(os.dup(2))
        errors_file, stderr = made
        # `-P` is not inherited. Without it the working directory would come first in sys.path.
        flags = ["-P"] if sys.flags.safe_path else []
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *flags, "-m", "kilnwork.worker.zygote", str(stderr)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, zygote_end.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, errors_file, 2),
                (os.POSIX_SPAWN_DUP2, stderr, stderr),  # onto itself: clears close-on-exec
            ],
            # The mask is inherited: a signal that is blocked here would never reach the zygote.
            setsigmask=(),
        )
    except BaseException:
        own_end.close()
        _close(tuple(made[:1]))
        raise
    finally:
        zygote_end.close()
        _close(tuple(made[1:]))
    return zygote_link.ZygoteHandle(pid, own_end, errors_file)


def _pass_on_errors(zygote: zygote_link.ZygoteHandle) -> str:
    """Copy the errors that a zygote wrote before it was ready or died to standard error; return the
    end of them.
    """
    written = b""
    try:
        size = os.fstat(zygote.errors).st_size
        written = os.pread(zygote.errors, _LAST_BYTES, max(0, size - _LAST_BYTES))
        if written:
            os.write(2, written)
    except OSError as error:
        log.warning("errors cannot be passed on", extra={"why": str(error)})
    finally:
        os.close(zygote.errors)
    return written.decode(errors="replace").strip()


def _not_started(code: int, error_text: str) -> str:
    how = (
        f"exit code {code}" if code >= 0 else f"signal {-code} ({outcome_rules.signal_name(-code)})"
    )
    last = f": {error_text.splitlines()[-1]}" if error_text else ""
    return f"the process that starts slots ended before it was ready, with {how}{last}"


def _close(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
