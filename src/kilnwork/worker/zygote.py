"""The zygote: a single-threaded process that forks slots, waits for them, and proves that they have
ended.

`__main__` forks the first zygote before the agent imports asyncio, so that agent, zygote and slots
share memory pages. A zygote that replaces it is a new program (`python -m kilnwork.worker.zygote`,
with its socket as standard input). The zygote runs no user code. It is a subreaper, so processes
that a slot leaves behind become its children: any child that is not a slot belongs to a slot that
has died, and is killed. A slot is a subreaper too, so no process of a living slot becomes a child
of the zygote. When the agent is gone, the zygote kills all slots and exits. When the zygote dies,
its slots die with it (PR_SET_PDEATHSIG), and the agent kills the processes that they leave behind.
"""

import contextlib
import functools
import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from kilnwork.kit import clock, logs, processes
from kilnwork.worker import settings, slot_process, zygote_link

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""Seconds after which a killed process that still exists counts as stuck in the kernel: then there
is no proof.
"""

EX_SLOT_NOT_STARTED = 70
"""Exit code of a slot that could not begin (EX_SOFTWARE of sysexits.h)."""

COMMON = ("cloudpickle",)
"""Modules that most slots need: the zygote imports them, so that slots share their memory.
cloudpickle transfers the functions of scripts and notebooks. A slot that imported it by itself
would take 1 MiB more, and leaving it out would not make slots start sooner.
"""

_FIRST_PAUSE_S = 0.0005
_MAX_PAUSE_S = 0.05

RunSlot = Callable[[slot_process.SlotParameters], None]


@dataclass(slots=True)
class _Ended:
    """A slot whose process has exited and was reaped; processes that it started may still run."""

    slot: bytes
    code: int
    until: float


class Zygote:
    """The main loop of the zygote, which forks and reaps slots; see the module.

    `run_slot`: the main function of a slot, called in the slot's process.
    """

    def __init__(self, link: socket.socket, *, clock: clock.Clock, run_slot: RunSlot) -> None:
        self._link = link
        self._clock = clock
        self._run_slot = run_slot
        self._pid = os.getpid()
        self._slots: dict[int, bytes] = {}
        self._ended: list[_Ended] = []
        self._abandoned: set[processes.ProcessId] = set()
        self._pause_s = _FIRST_PAUSE_S
        self._orphaned = False
        self._woken, self._waker = socket.socketpair()

    def serve(self) -> None:
        """Carry out orders until the agent is gone and no slot is left."""
        processes.become_subreaper()
        self._report(zygote_link.Ready())
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        # A SIGCHLD between the sweep and the poll leaves a byte in the pipe, so that the poll
        # returns.
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        # With the default action Python installs no handler in C, so that nothing would wake the
        # poll.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._link, select.POLLIN)
        while self._slots or self._ended or not self._orphaned:
            ready = dict(poll.poll(self._pause_s * 1000 if self._ended else None))
            if self._woken.fileno() in ready:
                self._calm()
            if self._link.fileno() in ready and not self._obey():
                poll.unregister(self._link)
                self._orphaned = True
                # Pids are safe here: only `_sweep` waits for slots, so no pid in `_slots` is
                # reused.
                processes.signal_all(self._slots, signal.SIGKILL)
            self._sweep()

    def _calm(self) -> None:
        try:
            while len(self._woken.recv(4096)) == 4096:
                continue
        except BlockingIOError:
            return

    def _obey(self) -> bool:
        """Carry out one order; return False when there will be no more orders."""
        try:
            order, descriptors = zygote_link.receive_order(self._link)
        except OSError:
            return False
        try:
            match order:
                case zygote_link.ForkSlot():
                    self._fork_slot(order, descriptors)
                case zygote_link.KillSlot():
                    # The slot may have ended while the order was on its way.
                    pids = [pid for pid, name in self._slots.items() if name == order.slot]
                    processes.signal_all(pids, signal.SIGKILL)
        finally:
            # The child has its own copies; the zygote's copies would accumulate with every slot.
            for descriptor in descriptors:
                os.close(descriptor)
        return order is not None

    def _fork_slot(self, order: zygote_link.ForkSlot, descriptors: list[int]) -> None:
        if len(descriptors) != zygote_link.DESCRIPTORS:
            self._report(
                zygote_link.SlotEnded(order.slot, None, "its descriptors did not arrive", True)
            )
            return
        try:
            pid = processes.fork()
        except OSError as error:
            why = f"the worker cannot fork: {error.strerror}"
            self._report(zygote_link.SlotEnded(order.slot, None, why, True))
            return
        # `_become` never returns: a child in the loop of `serve` would obey orders too.
        if pid == 0:
            self._become(order, descriptors)
        self._slots[pid] = order.slot
        self._report(zygote_link.SlotForked(order.slot, pid))

    def _become(self, order: zygote_link.ForkSlot, descriptors: list[int]) -> NoReturn:
        """Turn the child of a fork into a slot.

        Nothing of the zygote's state is used from here on.
        """
        code = EX_SLOT_NOT_STARTED
        try:
            # First: a signal would write into the zygote's pipe, which this process shares.
            signal.set_wakeup_fd(-1)
            # Handlers and ignored signals are inherited over a fork.
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for end in (self._link, self._woken, self._waker):
                end.close()
            # `run` has disabled collections for the zygote.
            gc.enable()
            page, reading, writing = descriptors
            self._run_slot(
                slot_process.SlotParameters(
                    self._pid, order.slot, order.secret, page, reading, writing
                )
            )
            code = os.EX_OK
        except BaseException:  # noqa: BLE001  whatever it was, this process must not go on
            traceback.print_exc()
        finally:
            # No cleanup: exit handlers and buffered output belong to the zygote.
            os._exit(code)

    def _sweep(self) -> None:
        """Wait for all children that have exited, then kill the processes that dead slots left
        behind.
        """
        alone = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # ECHILD: no child is left, so dead slots have left none behind.
                alone = True
                break
            if pid == 0:
                break
            name = self._slots.pop(pid, None)
            if name is not None:
                code = os.waitstatus_to_exitcode(status)
                until = self._clock.monotonic() + PATIENCE_S
                self._ended.append(_Ended(name, code, until))
                self._pause_s = _FIRST_PAUSE_S
        if self._ended and (alone or not self._kill_orphans()):
            self._settle(proof=True)

    def _kill_orphans(self) -> bool:
        """Kill the processes that dead slots left behind; return False if there are none.

        The kernel hands a process's children to the subreaper before the process can be waited for,
        and lists them until they are waited for: a process that is not seen here does not exist.
        """
        stats = processes.read_all()
        orphans = {
            pid
            for pid, stat in stats.items()
            if stat.parent == self._pid
            and pid not in self._slots
            and processes.ProcessId(pid, stat.started) not in self._abandoned
        }
        if not orphans:
            return False
        if self._clock.monotonic() > self._ended[-1].until:
            self._abandoned |= {processes.ProcessId(pid, stats[pid].started) for pid in orphans}
            log.error("processes of a slot cannot be killed", extra={"pids": sorted(orphans)})
            # It is unknown which slot left them, so no ended slot gets a proof.
            self._settle(proof=False)
            return True
        left = orphans | processes.descendants_in(orphans, stats)
        # No signal may reach a living slot, or the zygote itself.
        groups = {stats[pid].group for pid in left} - self._slots.keys() - {os.getpgrp()}
        # Groups first: a signal to a group also reaches processes forked since /proc was read.
        processes.signal_all((-group for group in groups), signal.SIGKILL)
        processes.signal_all(left, signal.SIGKILL)
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
        return True

    def _settle(self, *, proof: bool) -> None:
        ended, self._ended = self._ended, []
        for one in ended:
            self._report(zygote_link.SlotEnded(one.slot, one.code, "", proof))

    def _report(self, report: zygote_link.Report) -> None:
        try:
            zygote_link.send(self._link, report)
        except OSError:
            log.debug("the agent is gone")


def prepare(given: settings.WorkerSettings) -> None:
    """Set up the state that all slots inherit: the working directory and `sys.path`, without the
    worker's own environment variables and the owner's descriptor.
    """
    if given.workdir is not None:
        os.chdir(given.workdir)
    sys.path.extend(entry for entry in given.pythonpath if entry not in sys.path)
    for name in settings.OWN_VARIABLES & os.environ.keys():
        del os.environ[name]
    if given.owner is not None:
        os.close(given.owner)


def run(link: socket.socket, given: settings.WorkerSettings, *, stderr: int) -> None:
    """Run the zygote in its own process until the agent is gone.

    `stderr`: becomes standard error once the zygote is ready (see `ZygoteHandle.errors`).
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes.rename(zygote_link.ZYGOTE)
    _empty_stdin()
    prepare(given)
    gc.disable()
    for module in COMMON:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    open_blobs = None
    if given.remote is not None:  # imported by name: only a worker with a relay needs it
        far = importlib.import_module("kilnwork.worker.relayed_blobs")
        open_blobs = functools.partial(far.open_blobs, given)
    # A collection in a slot would write to the header of each object, and so copy shared pages.
    gc.freeze()
    here = slot_process.SlotSurroundings(given.channel, clock.SystemClock(), open_blobs)
    # Output so far belongs to the errors file, not to the new descriptor 2.
    sys.stderr.flush()
    os.dup2(stderr, 2)
    os.close(stderr)
    Zygote(link, clock=here.clock, run_slot=functools.partial(slot_process.run_slot, here)).serve()


def _empty_stdin() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def main() -> None:
    """Run a zygote that replaces a dead one; its argument is `stderr` of `run`."""
    logs.setup()
    # A copy: descriptor 0 is the link, and `_empty_stdin` replaces it.
    link = socket.socket(fileno=os.dup(0))
    stderr = int(sys.argv[1])
    # It had to be inheritable for the exec.
    os.set_inheritable(stderr, False)
    os.environ.pop("KILN_OWNER_FD", None)  # the descriptor was not inherited
    run(link, settings.from_environment(os.environ), stderr=stderr)


if __name__ == "__main__":
    main()
