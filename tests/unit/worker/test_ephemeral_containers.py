"""Attempts in containers of their own, and finding and ending the processes of such containers."""

import asyncio
import contextlib
import os
import subprocess
import types
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts, task
from kilnwork.channel import messages
from kilnwork.kit import clock, ids
from kilnwork.worker import (
    attempt,
    directories,
    environment,
    ephemeral_containers,
    orphans,
    outcome_rules,
)
from support import waiting

POD = str(uuid.uuid4())


def start(
    marker: str, *, pod: str = POD, command: str = "exec sleep 300"
) -> subprocess.Popen[bytes]:
    variables = {
        orphans.MARKER: marker,
        ephemeral_containers.POD_VARIABLE: pod,
        "PATH": os.environ["PATH"],
    }
    return subprocess.Popen(["sh", "-c", command], env=variables, start_new_session=True)


@pytest.fixture
def two() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Containers of two attempts in two Pods."""
    made = [start("t/1/1"), start("t/1/2", pod="other")]
    yield made
    for process in made:
        process.kill()
        process.wait()


def test_processes_of_a_container_include_all_that_it_started(
    two: list[subprocess.Popen[bytes]],
) -> None:
    family = start("t/1/3", command="trap : TERM; sleep 300 & while :; do wait; done")
    try:
        waiting.wait_until(
            lambda: len(ephemeral_containers.processes_of("", "t/1/3")) == 2, what="both run"
        )
        assert family.pid in ephemeral_containers.processes_of("", "t/1/3")
        assert two[0].pid not in ephemeral_containers.processes_of("", "t/1/3")
        ephemeral_containers.kill("", "t/1/3")
        assert family.wait() == -9
        waiting.wait_until(
            lambda: not ephemeral_containers.processes_of("", "t/1/3"), what="all are gone"
        )
    finally:
        ephemeral_containers.kill("", "t/1/3")


def test_empty_id_finds_no_process(two: list[subprocess.Popen[bytes]]) -> None:
    assert ephemeral_containers.processes_of("", "t/9/9") == set()


async def test_new_worker_kills_processes_in_its_own_pod_only(
    two: list[subprocess.Popen[bytes]],
) -> None:
    await ephemeral_containers.clear(POD)
    assert two[0].wait(timeout=5) == -9
    assert two[1].poll() is None


class HaltedWhileServing(ephemeral_containers.ContainerAttempt):
    """An attempt that is halted while the server on its socket starts."""

    async def _serve(self, place: directories.AttemptDirectory) -> attempt.ClosableServer:
        self.halt(outcome_rules.Halt(attempts.Ending.STOPPED, "Killed", ""), grace_s=30)
        return await super()._serve(place)


async def test_attempt_halted_before_its_request_starts_no_container(tmp_path: Path) -> None:
    made = directories.Directories()
    sent: list[messages.FromWorker] = []

    def report(make: Callable[[int], messages.FromWorker]) -> None:
        sent.append(make(1))

    tools: Any = types.SimpleNamespace(
        cluster="c",
        clock=clock.ManualClock(),
        link=types.SimpleNamespace(send=sent.append, report=report),
        directories=made,
        environment=environment.Environment({}, mounts=tmp_path, pod_uid=POD),
    )
    ref = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
    run = messages.Run(ref, "ns", "t", task.TaskSpec(command=("true",)), None)
    with contextlib.closing(made):
        async with asyncio.timeout(5):
            await HaltedWhileServing(run, tools).run()
    (finished,) = sent
    assert isinstance(finished, messages.Finished)
    assert finished.outcome.ending is attempts.Ending.STOPPED
