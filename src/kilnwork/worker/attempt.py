"""One attempt of a command on a worker: its files, process, output, outcome and proof of its end.

Used by `agent`, which keeps each attempt until the dispatcher has stored its outcome. Everything
that attempts share is in `Tools`.
"""

import asyncio
import importlib
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kilnwork.api import attempts, reasons
from kilnwork.api import env_sources as api_variables
from kilnwork.channel import messages, worker_side
from kilnwork.kit import clock, processes
from kilnwork.worker import (
    attempt_output,
    command_start,
    directories,
    environment,
    errors,
    memory_watch,
    orphans,
    outcome_rules,
    pod_log_writer,
    reaper,
    result_file,
)

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Seconds for which an attempt that this worker cannot start occupies its slot: without this
pause, a worker that cannot start anything would soon use up the whole queue.
"""


@dataclass(frozen=True, slots=True)
class Tools:
    """The parts of a worker that all its attempts share."""

    cluster: str
    clock: clock.Clock
    link: worker_side.Peer
    reaper: reaper.Reaper
    orphans: orphans.Orphans
    directories: directories.Directories
    environment: environment.Environment
    stdout: pod_log_writer.StdoutWriter
    explain_kill: Callable[[], str]
    """Returns a message if the kernel's OOM killer has ended a process, otherwise ""; see
    `memory_watch.MemoryWatch.explain_kill`.
    """


class ClosableServer(Protocol):
    """Port of the HTTP server on a task's socket; see `task_socket`."""

    async def close(self) -> None: ...


class Attempt:
    """One attempt to run a command. `run` carries it out; every other method may be called
    meanwhile.
    """

    shares_files = True
    """Whether the command has the same file system as this process."""

    def __init__(self, run: messages.Run, tools: Tools) -> None:
        self.ref = run.ref
        self.grace_s = run.spec.timeouts.kill_grace_seconds
        self.over = asyncio.Event()
        self.silent = False
        self._run = run
        self._tools = tools
        self._halt: outcome_rules.Halt | None = None
        self._command: command_start.Command | None = None
        self._output: attempt_output.AttemptOutput | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Run the command and report its outcome; return when no process of it is left."""
        tools = self._tools
        place = None
        try:
            place = tools.directories.make(self.ref, inputs=self._run.inputs)
            outcome = await self._execute(place)
        except errors.CannotStart as error:
            outcome = outcome_rules.not_started_outcome(error, at=tools.clock.wall())
        except errors.CannotStartHere as error:
            log.warning("an attempt cannot be started", extra={"why": str(error)})
            await asyncio.sleep(PAUSE_S)
            outcome = outcome_rules.not_started_outcome(error, at=tools.clock.wall())
        self.over.set()
        if not self.silent:
            tools.link.report(lambda serial: messages.Finished(serial, self.ref, outcome))
        log.debug(
            "attempt over",
            extra={
                "attempt": str(self.ref),
                "ending": outcome.ending.value,
                "reason": outcome.reason,
                "proof": outcome.proof,
            },
        )
        if place is not None:
            await place.remove()

    def halt(self, halt: outcome_rules.Halt, *, grace_s: float) -> None:
        """Ask the command to end: send SIGTERM to its process group, and SIGKILL after `grace_s`.

        The first halt decides the ending that is reported.
        """
        if self.over.is_set():
            return
        if self._halt is None:
            self._halt = halt
            if self._asking is not None:
                # Cancel a request for variables: no process exists yet that could be signalled.
                self._asking.reschedule(asyncio.get_running_loop().time())
            self._signal(signal.SIGTERM)
            # A process that is stopped (SIGSTOP) handles SIGTERM only once it continues.
            self._signal(signal.SIGCONT)
        self._kill_after(grace_s)

    def candidate(self) -> memory_watch.Candidate | None:
        """Return the command as a candidate for being ended to free memory, or None while it cannot
        be ended.
        """
        if self._command is None or self._halt is not None:
            return None
        return memory_watch.Candidate(self._command.pid, self._end_for_memory)

    def abandon(self, halt: outcome_rules.Halt) -> None:
        """Kill the command and report nothing, because the dispatcher does not know this
        attempt.
        """
        self.silent = True
        self._tools.link.forget(self.ref)
        self.halt(halt, grace_s=0)

    def reattach(self, offset: int) -> None:
        """Continue an attempt, which the dispatcher knows, on a new link: send its output from
        `offset` on; the dispatcher has stored the rest.
        """
        self.silent = False
        if self._output is not None:
            self._output.send_again(offset)

    def container_seen(self, status: messages.ContainerSeen) -> None:
        """Handle the start or end of the attempt's container; see `ephemeral_containers`.

        Does nothing here, because the command runs in the worker's own container.
        """

    def drop_output_below(self, offset: int) -> None:
        """Drop the output below `offset`, which the dispatcher has stored."""
        if self._output is not None:
            self._output.drop_below(offset)

    async def _execute(self, place: directories.AttemptDirectory) -> attempts.Outcome:
        tools = self._tools
        values = await self._variables()
        if self._halt is not None:
            return outcome_rules.halted_outcome(self._halt, at=tools.clock.wall())
        variables = tools.environment.for_attempt(self._run, place, values)
        spec = self._run.spec
        command = command_start.start((*spec.command, *spec.args), variables)
        # Must run in the same turn of the loop: a sweep before it would drop the exit status.
        ended = tools.reaper.watch(command.pid)
        self._command = command
        processes.offer_to_oom_killer(command.pid)
        started = tools.clock.wall()
        tools.link.report(lambda serial: messages.Started(serial, self.ref, started))
        root = tools.orphans.register(command.pid, marker=str(self.ref))
        self._output = attempt_output.AttemptOutput(
            command.output, send=self._send_output, shared=tools.stdout
        )
        server = await self._serve(place)
        exited = await ended
        code = exited.code
        killed = code in (-signal.SIGKILL, outcome_rules.SHELL_SIGKILLED)
        # Ask now: a kill by the kernel explains an end only for `FRESH_S`, and `clear` may take as
        # long.
        oom = tools.explain_kill() if killed and self._halt is None else ""
        # From here on its pid may be reused.
        self._command = None
        proof = await tools.orphans.clear(root)
        await server.close()
        # Read the rest only now, when no process is left that could print.
        self._output.finish()
        self._cancel_kill()
        finished = tools.clock.wall()
        seen = outcome_rules.CommandEnd(
            code=code,
            proof=proof,
            started=started,
            finished=finished,
            oom=oom,
            usage=exited.usage,
        )
        return outcome_rules.command_outcome(
            seen, halt=self._halt, result=self._result(place, code)
        )

    async def _variables(self) -> dict[str, str]:
        """Return the values of variables from Secrets and ConfigMaps; empty if the task has no such
        variables, or if the attempt is halted.

        Raises CannotStart.
        """
        if api_variables.are_literal(self._run.spec.env) or self._halt is not None:
            return {}
        try:
            # No time limit; `halt` sets one to cancel the request.
            async with asyncio.timeout(None) as self._asking:
                response = await self._tools.link.request(
                    lambda serial: messages.GetVariables(serial, self.ref)
                )
        except TimeoutError:
            return {}
        finally:
            self._asking = None
        if response.status != api_variables.FOUND:
            raise errors.CannotStart(
                reasons.Reason.VARIABLE_MISSING, api_variables.refusal(response.body)
            )
        return api_variables.decode(response.body)

    async def _serve(self, place: directories.AttemptDirectory) -> ClosableServer:
        """Start the HTTP server on the task's socket.

        Its module is imported only here: it takes 0.4 MiB, and a worker that runs only calls does
        not need it.
        """
        task_socket = importlib.import_module("kilnwork.worker.task_socket")
        calls = task_socket.TaskSocket(
            self.ref,
            cluster=self._tools.cluster,
            link=self._tools.link,
            clock=self._tools.clock,
        )
        server: ClosableServer = await task_socket.serve(calls, place.listener)
        return server

    def _result(
        self, place: directories.AttemptDirectory, code: int
    ) -> attempts.Payload | errors.BadResult | None:
        # After a failure or a halt the file may be incomplete.
        return None if code != os.EX_OK or self._halt is not None else self._read(place)

    def _read(
        self, place: directories.AttemptDirectory
    ) -> attempts.Payload | errors.BadResult | None:
        try:
            return result_file.read(
                place.output,
                output_type=self._run.spec.output_type,
                follow_links=self.shares_files,
            )
        except errors.BadResult as error:
            return error

    def _send_output(self, offset: int, data: bytes) -> None:
        if not self.silent:
            self._tools.link.send(messages.Log(ref=self.ref, offset=offset, data=data))

    def _end_for_memory(self, message: str) -> None:
        reason = str(reasons.Reason.OUT_OF_MEMORY)
        if self._halt is None and not self.over.is_set():
            self._halt = outcome_rules.Halt(attempts.Ending.FAILED, reason, message)
            # No SIGTERM first: the command would go on to use more memory.
            self._signal(signal.SIGKILL)

    def _kill_after(self, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + grace_s
        # A later halt can only shorten the grace period.
        if self._kill_timer is not None and self._kill_timer.when() <= at:
            return
        self._cancel_kill()
        self._kill_timer = loop.call_at(at, self._signal, signal.SIGKILL)

    def _cancel_kill(self) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()

    def _signal(self, number: int) -> None:
        if self._command is not None:
            self._command.signal(number)
