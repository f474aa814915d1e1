"""Attempts whose commands run in ephemeral containers of their own, in this worker's Pod.

Used by `agent`, which imports it by name where the TaskCluster says `runtime: EphemeralContainers`.
A worker has no rights in Kubernetes, so the dispatcher has the container created and reports its
status. Otherwise such an attempt is like any other: files, socket, result, report. No client can
delete an ephemeral container, but the containers of the Pod share a process namespace, so the
worker signals the container's processes.
"""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path

import msgspec

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.kit import processes
from kilnwork.worker import attempt, directories, errors, orphans, outcome_rules

log = logging.getLogger(__name__)

POD_VARIABLE = "KILN_POD_UID"
"""Environment variable of each container, by which a restarted worker finds the processes that its
predecessor has left.
"""

REPORT_S = 1.5
"""Seconds for which a worker that shuts down waits for reports of how its containers have ended: a
kubelet reports their states once a second.
"""

LOOK_S = 0.1
"""Seconds between two checks whether a killed container still has processes."""

_E = attempts.Ending


class ContainerAttempt(attempt.Attempt):
    """An attempt whose command runs in its own container.

    `container_seen` receives the status of that container.
    """

    shares_files = False

    def __init__(self, run: messages.Run, tools: attempt.Tools) -> None:
        super().__init__(run, tools)
        self._container = ""
        self._began: float | None = None
        self._wanted: messages.StartContainer | None = None
        self._stop: messages.StopContainer | None = None
        self._signalled: set[int] = set()
        self._was_over = False
        """Whether the container had ended before it was to be stopped."""
        self._end: asyncio.Future[attempts.Outcome] = asyncio.get_running_loop().create_future()
        self._killed = False

    def container_seen(self, status: messages.ContainerSeen) -> None:
        """Handle the start or end of the attempt's container."""
        if status.started is not None and self._began is None:
            began = self._began = status.started
            self._tools.link.report(lambda serial: messages.Started(serial, self.ref, began))
        if status.container:
            self._container = status.container
        if status.outcome is not None:
            self._finish(status.outcome)
        elif self._halt is not None:
            self._signal(signal.SIGTERM)

    def halt(self, halt: outcome_rules.Halt, *, grace_s: float) -> None:
        super().halt(halt, grace_s=grace_s)
        if self._wanted is not None and self._stop is None and not self._end.done():
            self._stop = messages.StopContainer(self.ref, grace_s, halt.reason)
            self._tools.link.send(self._stop)
            if halt.ending is _E.LOST and self._began is not None:
                asyncio.get_running_loop().call_later(REPORT_S, self._end_without_report)

    def reattach(self, offset: int) -> None:
        super().reattach(offset)
        # The dispatcher keeps these requests in memory only, and may have restarted.
        if self._wanted is not None and not self._end.done():
            self._tools.link.send(self._wanted)
            if self._stop is not None:
                self._tools.link.send(self._stop)

    def candidate(self) -> None:
        """Return None: each container has a memory limit of its own, or shares that of the Pod."""

    async def _execute(self, place: directories.AttemptDirectory) -> attempts.Outcome:
        tools = self._tools
        variables = tools.environment.of_container(self._run, place)
        server = await self._serve(place)
        try:
            # Only now, with no await before the request: from then on `halt` sends StopContainer.
            if self._halt is not None:
                return outcome_rules.halted_outcome(self._halt, at=tools.clock.wall())
            self._wanted = messages.StartContainer(self.ref, tuple(variables.items()))
            tools.link.send(self._wanted)
            outcome = await self._end
        finally:
            self._cancel_kill()
            await server.close()
        return self._judged(place, outcome)

    def _judged(
        self, place: directories.AttemptDirectory, outcome: attempts.Outcome
    ) -> attempts.Outcome:
        if self._halt is not None and not self._ended_by_itself(outcome):
            return msgspec.structs.replace(
                outcome,
                ending=self._halt.ending,
                reason=self._halt.reason,
                message=self._halt.message,
                requested_retry=False,
            )
        if outcome.ending is not _E.SUCCEEDED:
            return outcome
        result = self._read(place)
        if isinstance(result, errors.BadResult):
            return msgspec.structs.replace(
                outcome, ending=_E.FAILED, reason=str(result.reason), message=str(result)
            )
        return msgspec.structs.replace(outcome, result=result)

    def _ended_by_itself(self, outcome: attempts.Outcome) -> bool:
        """Return whether the container ended by itself, rather than because of the halt.

        If the attempt is to be reported as lost, the Pod may be ending, which ends its containers
        in any order. Then a failure before the halt may be due to the Pod's end, so only success
        counts.
        """
        lost = self._halt is not None and self._halt.ending is _E.LOST
        return self._was_over and not (lost and outcome.ending is not _E.SUCCEEDED)

    def _finish(self, outcome: attempts.Outcome) -> None:
        if not self._end.done():
            self._end.set_result(outcome)

    def _signal(self, number: int) -> None:
        """Send SIGTERM to all processes of the container, or SIGKILL repeatedly until they are
        gone; ignore other signals.
        """
        if number == signal.SIGKILL:
            if not self._killed:
                self._killed = True
                self._kill(asyncio.get_running_loop().time() + orphans.PATIENCE_S)
            return
        if self._began is None or number != signal.SIGTERM:
            return
        found = processes_of(self._container, str(self.ref))
        # No process is left, and none was ever signalled: the halt did not end the container.
        self._was_over = not found and not self._signalled
        self._signalled |= found
        _send(found, signal.SIGTERM)

    def _kill(self, deadline: float) -> None:
        """Send SIGKILL repeatedly until the container's end is reported.

        Without a lease, processes that were seen and are gone are proof of the end, too. At
        `deadline`, in the event loop's time, the attempt ends without proof.
        """
        if self._end.done():
            return
        loop = asyncio.get_running_loop()
        found = processes_of(self._container, str(self.ref))
        _send(found, signal.SIGKILL)
        # While the lease holds, wait for the report of the container's end, which says more.
        if self._signalled and not found and not self._tools.link.lease_holds:
            self._finish(self._stopped(proof=True))
        elif loop.time() > deadline:
            log.error("a container does not end", extra={"attempt": str(self.ref)})
            self._finish(self._stopped(proof=False))
        # After the check: the processes must be found in one look, and be gone in a later one.
        self._signalled |= found
        loop.call_later(LOOK_S, self._kill, deadline)

    def _end_without_report(self) -> None:
        """End the attempt of a worker that shuts down, once no process of the container is found;
        do not wait for a report, because the manager may be away.

        If no process was ever found, that proves nothing; the end of the Pod will.
        """
        if self._end.done():
            return
        if processes_of(self._container, str(self.ref)):
            asyncio.get_running_loop().call_later(LOOK_S, self._end_without_report)
        else:
            self._finish(self._stopped(proof=bool(self._signalled)))

    def _stopped(self, *, proof: bool) -> attempts.Outcome:
        at = self._tools.clock.wall()
        return attempts.Outcome(_E.STOPPED, "", proof=proof, started=self._began, finished=at)


def processes_of(container: str, marker: str) -> set[int]:
    """Return the pids of a container's processes, found by the container's cgroup or by the marker
    in their environment.
    """
    wanted = f"{orphans.MARKER}={marker}".encode()
    return {
        pid for pid in _other_processes() if _is_in(pid, container) or wanted in _environment(pid)
    }


def kill(container: str, marker: str) -> None:
    """Send SIGKILL to all processes of one container."""
    _send(processes_of(container, marker), signal.SIGKILL)


async def clear(pod_uid: str) -> None:
    """Kill all processes that an earlier worker process of this Pod has left running, and wait
    until they are gone.

    The dispatcher takes the new worker's Hello as proof that nothing of the old one runs. Raises
    WorkerError if a process does not end.
    """
    wanted = f"{POD_VARIABLE}={pod_uid}".encode()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + orphans.PATIENCE_S
    while left := {pid for pid in _other_processes() if _of_containers(pid, wanted)}:
        if loop.time() > deadline:
            raise errors.WorkerError(f"processes {sorted(left)} of an earlier life do not end")
        _send(left, signal.SIGKILL)
        await asyncio.sleep(LOOK_S)


def _of_containers(pid: int, wanted: bytes) -> bool:
    entries = _environment(pid)
    return wanted in entries and any(e.startswith(_MARKER_BYTES) for e in entries)


_MARKER_BYTES = f"{orphans.MARKER}=".encode()


def _other_processes() -> set[int]:
    stats = processes.read_all()
    # Zombies run nothing, and only their parents can wait for them.
    return {pid for pid, stat in stats.items() if stat.running and pid != os.getpid()}


def _is_in(pid: int, container: str) -> bool:
    # An empty id would be found in every line.
    if not container:
        return False
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def _environment(pid: int) -> frozenset[bytes]:
    try:
        return frozenset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return frozenset()


def _send(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
