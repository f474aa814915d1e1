"""The agent, which holds the worker's link to the dispatcher and its attempts.

Used by `agent_process`. The agent carries out orders and decides little: the dispatcher counts
slots, so the agent carries out every Run. Its own responsibility is that no attempt runs here while
another worker may start the same task again: it ends all attempts before its lease expires, and
starts none without a lease.
"""

import asyncio
import importlib
import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kilnwork.api import attempts, reasons
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages, worker_side
from kilnwork.kit import clock, coroutines, ids, processes
from kilnwork.worker import (
    attempt,
    command_start,
    directories,
    environment,
    errors,
    memory_measurement,
    memory_watch,
    orphans,
    outcome_rules,
    pod_log_writer,
    reaper,
    settings,
    slots,
    zygote_link,
    zygote_supervisor,
)

log = logging.getLogger(__name__)

SHUTDOWN_GRACE_S = 8.0
"""Maximum seconds between SIGTERM and SIGKILL of the tasks when the worker itself is asked to stop:
a Pod has 30 s by default, and `kiln up` ends within 20 s.
"""

LAST_WORDS_S = 2.0
"""Maximum seconds for which a stopping worker waits until its reports are acknowledged, and then
until the zygote has exited.
"""

_UNKNOWN = outcome_rules.Halt(
    attempts.Ending.STOPPED, reasons.Reason.REPLACED.value, "the dispatcher does not know it"
)
_LEASE_ENDED = outcome_rules.Halt(
    attempts.Ending.LOST,
    reasons.Reason.WORKER_LOST.value,
    "the worker could not renew its lease, so it ended its tasks",
)
_STOPPING = outcome_rules.Halt(
    attempts.Ending.LOST, reasons.Reason.WORKER_STOPPING.value, "the worker was asked to stop"
)


class RelayPort(Protocol):
    """Port of the relay, which listens in place of the dispatcher's socket when the dispatcher is
    on another machine; see `relay`.
    """

    @property
    def address(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Agent:
    """The agent of a worker, which runs attempts and slots as the dispatcher orders; see the
    module.

    `session`: a UUIDv7 (16 bytes), new for each process. `relay`: the way to a dispatcher on
    another machine; None if it is on this one.
    """

    def __init__(
        self,
        given: settings.WorkerSettings,
        *,
        inherited: Mapping[str, str],
        clock: clock.Clock,
        entropy: ids.Entropy,
        session: bytes,
        relay: RelayPort | None = None,
    ) -> None:
        self._settings = given
        self._relay = relay
        self._session = session
        self._background = coroutines.BackgroundWork("worker", on_failure=self._failed)
        self._failure: Exception | None = None
        self._attempts: dict[attempts.AttemptRef, attempt.Attempt] = {}
        self._reaper = reaper.Reaper()
        self._link = worker_side.Peer(
            self,
            path=given.channel,
            place=lambda: given.channel if relay is None else relay.address,
            clock=clock,
            entropy=entropy,
        )
        self._containers: Any = None
        if given.containers:  # imported by name: most workers run no containers
            self._containers = importlib.import_module("kilnwork.worker.ephemeral_containers")
        self._stopping = asyncio.Event()
        self._at_once = False
        orphan_processes = orphans.Orphans(self._reaper)
        self._memory = memory_watch.MemoryWatch(
            self._memory_candidates,
            stated=given.memory_limit,
            share=given.memory_share,
            groups=memory_measurement.groups(),
            clock=clock,
        )
        self._tools = attempt.Tools(
            cluster=given.cluster,
            clock=clock,
            link=self._link,
            reaper=self._reaper,
            orphans=orphan_processes,
            directories=_directories(given),
            environment=environment.Environment(
                inherited, mounts=given.mounts, pod_uid=given.pod_uid
            ),
            stdout=pod_log_writer.StdoutWriter(),
            explain_kill=self._memory.explain_kill,
        )
        self._slots = slots.Slots(
            link=self._link,
            shared=self._tools.stdout,
            explain_kill=self._memory.explain_kill,
        )
        self._supervisor = zygote_supervisor.ZygoteSupervisor(
            background=self._background,
            waiter=self._reaper,
            orphan_processes=orphan_processes,
            on_ended=self._slots.slot_ended,
            on_broken=self._zygote_broken,
        )
        self._slots.use(self._supervisor)

    async def run(self, zygote: zygote_link.ZygoteHandle) -> None:
        """Run the worker until SIGTERM or SIGINT, which start an orderly shutdown; a second signal
        skips the grace period.

        Slots are forked from `zygote`. When the owner closes its descriptor, everything ends at
        once.

        Raises `LinkRefused` or `LinkClosed` when no dispatcher accepts this worker, and
        `WorkerError` when the worker itself failed. In each case no task process is left when it
        raises.
        """
        if self._containers is not None:
            # Must precede the Hello, which proves that nothing of an earlier worker process runs.
            await self._containers.clear(self._settings.pod_uid)
        command_start.keep_descriptors_private()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # The loop runs these handlers between coroutines, never in the middle of one.
            loop.add_signal_handler(number, self._asked_to_stop)
        if self._settings.owner is not None:
            loop.add_reader(self._settings.owner, self._owner_gone, self._settings.owner)
        # Must precede the first sweep, which would drop the exit status of an unwatched zygote.
        self._supervisor.adopt(zygote)
        self._reaper.start()
        if self._relay is not None:
            await self._relay.start()
        self._background.start("link", self._hold_link())
        self._background.start("drain-pipes", self._slots.drain_full_pipes())
        self._background.start("memory", self._memory.run())
        try:
            await self._stopping.wait()
            await self._end_all()
            if self._failure is None and not self._at_once:
                await self._link.acknowledged(timeout_s=LAST_WORDS_S)
        finally:
            self._slots.close()
            await self._supervisor.close(timeout_s=LAST_WORDS_S)
            await self._background.stop()
            if self._relay is not None:
                await self._relay.stop()
            self._reaper.stop()
            # Kill all processes that are left: the end of the worker proves that nothing of it
            # runs.
            processes.signal_all(processes.descendants(os.getpid()), signal.SIGKILL)
            self._tools.stdout.close()
            self._tools.directories.close()
            # Ignored, not reset to the default action: a late signal must not change the exit code.
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
        if self._failure is not None:
            raise self._failure

    # peer.Owner: called by the link

    def hello(self, *, epoch: int) -> messages.Hello:
        """Return the Hello message of this worker, with its slots, and with all attempts that run
        or whose ends are not acknowledged.

        The token file is read each time, since the token may be renewed.
        """
        given = self._settings
        return messages.Hello(
            version=messages.VERSION,
            role="worker",
            session=self._session,
            credential=self._credential(),
            namespace=given.namespace,
            cluster=given.cluster,
            worker=given.worker,
            pod_uid=given.pod_uid,
            node=given.node,
            slots=given.slots,
            epoch=epoch,
            running=tuple(messages.Running(ref) for ref in self._attempts),
            processes=self._slots.living,
        )

    def welcomed(self, welcome: messages.Welcome) -> None:
        """Continue the attempts that the dispatcher knows on a new link; abandon all other attempts
        without a report.
        """
        keep = {
            decision.ref: decision.log_offset
            for decision in welcome.decisions
            if decision.verdict is messages.Verdict.KEEP
        }
        for ref, current in list(self._attempts.items()):
            if ref in keep:
                current.reattach(keep[ref])
            else:
                current.abandon(_UNKNOWN)
                if current.over.is_set():
                    # Its report was forgotten, so no acknowledgement will remove the attempt.
                    del self._attempts[ref]

    def received(self, order: worker_side.Order) -> None:
        """Carry out one order of the dispatcher."""
        match order:
            case messages.Run():
                self._start(order)
            case messages.Stop():
                self._stop(order)
            case messages.LogKept():
                current = self._attempts.get(order.ref)
                if current is not None:
                    current.drop_output_below(order.offset)
            case messages.OpenSlot():
                self._open(order)
            case messages.KillSlot():
                self._slots.kill(order.slot)
            case messages.ContainerSeen():
                current = self._attempts.get(order.ref)
                if current is not None:
                    current.container_seen(order)
            case messages.KillContainer():
                self._containers.kill(order.container, str(order.ref))

    def settled(self, ref: attempts.AttemptRef) -> None:
        """Forget an attempt whose end the dispatcher has stored."""
        self._attempts.pop(ref, None)

    def lease_ended(self) -> None:
        """Kill all attempts and slots because the lease is about to end: other workers may start
        the same tasks then.
        """
        for current in self._attempts.values():
            current.halt(_LEASE_ENDED, grace_s=0)
        self._slots.kill_all(reasons.Reason.WORKER_LOST)

    # orders of the dispatcher

    def _open(self, order: messages.OpenSlot) -> None:
        if self._stopping.is_set():
            self._slots.refuse(order.slot, _STOPPING.message)
        elif not self._link.lease_holds:
            self._slots.refuse(order.slot, _LEASE_ENDED.message)
        else:
            self._slots.open(order.slot)

    def _start(self, run: messages.Run) -> None:
        if run.ref in self._attempts:
            # A repeated Run must not start the command twice.
            return
        if self._stopping.is_set():
            self._refuse(run.ref, _STOPPING)
            return
        if not self._link.lease_holds:
            self._refuse(run.ref, _LEASE_ENDED)
            return
        kind = attempt.Attempt if self._containers is None else self._containers.ContainerAttempt
        current: attempt.Attempt = kind(run, self._tools)
        self._attempts[run.ref] = current
        self._background.start(str(run.ref), self._run_attempt(current))

    async def _run_attempt(self, current: attempt.Attempt) -> None:
        await current.run()
        if current.silent:
            # A silent attempt reports nothing, so no acknowledgement will remove it.
            self._attempts.pop(current.ref, None)

    def _refuse(self, ref: attempts.AttemptRef, halt: outcome_rules.Halt) -> None:
        """Report that an attempt ended before it started.

        Since no process was started, the report is proof that none runs.
        """
        outcome = outcome_rules.halted_outcome(halt, at=self._tools.clock.wall())
        self._link.report(lambda serial: messages.Finished(serial, ref, outcome))

    def _stop(self, order: messages.Stop) -> None:
        halt = outcome_rules.Halt(attempts.Ending.STOPPED, order.reason, "")
        current = self._attempts.get(order.ref)
        if current is None:
            self._refuse(order.ref, halt)
        else:
            current.halt(halt, grace_s=order.grace_s)

    # the end of the worker

    async def _hold_link(self) -> None:
        try:
            await self._link.serve()
        except channel_errors.ChannelError as error:
            self._failure = error
            self._stopping.set()

    def _failed(self, name: str, error: BaseException) -> None:
        """Shut down the worker after a bug. Its restart proves that nothing of the old worker
        runs.
        """
        self._failure = errors.WorkerError(f"{name} failed: {error!r}")
        self._stopping.set()

    def _zygote_broken(self, error: errors.NoZygote) -> None:
        """Shut down the worker because it cannot fork slots. The log says why; the Pod may be
        restarted.
        """
        self._failure = error
        self._stopping.set()

    def _memory_candidates(self) -> list[memory_watch.Candidate]:
        running = [current.candidate() for current in self._attempts.values()]
        return [*self._slots.candidates(), *(each for each in running if each is not None)]

    def _owner_gone(self, descriptor: int) -> None:
        """Shut down at once, because the process that started this worker has exited and wants no
        results.
        """
        # A closed descriptor stays readable: the loop would call this again and again.
        asyncio.get_running_loop().remove_reader(descriptor)
        self._at_once = True
        self._stopping.set()

    def _asked_to_stop(self) -> None:
        if self._stopping.is_set():
            for current in self._attempts.values():
                # A second signal ends the grace periods that have begun.
                current.halt(_STOPPING, grace_s=0)
        self._stopping.set()

    async def _end_all(self) -> None:
        log.info("worker stops", extra={"attempts": len(self._attempts)})
        for current in self._attempts.values():
            grace_s = 0.0 if self._at_once else min(current.grace_s, SHUTDOWN_GRACE_S)
            current.halt(_STOPPING, grace_s=grace_s)
        self._slots.kill_all(reasons.Reason.WORKER_STOPPING)
        # The grace periods of the attempts pass meanwhile.
        await self._supervisor.close(timeout_s=orphans.PATIENCE_S)
        try:
            async with asyncio.timeout(SHUTDOWN_GRACE_S + orphans.PATIENCE_S):
                # A copy, because acknowledgements remove attempts.
                for current in list(self._attempts.values()):
                    await current.over.wait()
        except TimeoutError:
            log.error("attempts do not end")  # noqa: TRY400

    def _credential(self) -> str:
        try:
            return self._settings.token_file.read_text().strip()
        except OSError as error:
            log.warning("the channel token cannot be read", extra={"why": str(error)})
            return ""


def _directories(given: settings.WorkerSettings) -> directories.Directories:
    """Create the base directory for attempts.

    If commands run in containers of their own, the directory is in a place that these containers
    can see: in the shared volume (`settings.VOLUME`), unless all containers share this machine's
    files.
    """
    base = None if given.remote is None else given.remote.directory
    if base is None and given.containers and given.mounts == Path("/"):
        base = settings.VOLUME / f"{settings.DIRECTORY_PREFIX}{os.urandom(6).hex()}"
    return directories.Directories(base, shared=given.containers)
