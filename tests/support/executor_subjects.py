"""Subjects of the executor contract: Pods on the embedded Kubernetes, and an executor made for
tests.

`ProcessExecutor` shows that the contract does not depend on Pods: its objects are directories,
their programs are processes of this machine, and it is polled.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import api_resources, attempts, pod, reasons
from kilnwork.api import task as api_task
from kilnwork.executors import port
from kilnwork.executors.pod import executor as pod_executor
from kilnwork.executors.pod import template
from kilnwork.kit import http_types
from kilnwork.kube import cache, client, errors, reflector
from support import embedded_server, executor_world

NS = executor_world.NS
_OURS = ",".join(f"{key}={value}" for key, value in template.MANAGED.items())
POLL_S = 0.02
_SUBRESOURCES = ("ephemeralcontainers",)


class SteppingClient(client.Client):
    """A client whose requests are steps of a life, and whose server can be made unavailable."""

    steps: executor_world.Steps | None = None
    absent = False

    async def raw(self, method: str, path: str, **more: Any) -> http_types.ClientResponse:
        if self.absent:
            raise errors.Unavailable(0, "", "connection refused by the test")
        listing = (method, path.endswith("/pods")) == ("GET", True)
        if self.steps is None or listing:
            return await super().raw(method, path, **more)
        last = path.rpartition("/")[2]
        what = f"{method} {last if last in _SUBRESOURCES else 'pod'}"
        await self.steps.reach(f"before {what}")
        response = await super().raw(method, path, **more)
        await self.steps.reach(f"after {what}")
        return response

    async def watch(self, *what: Any, **how: Any) -> AsyncGenerator[Any, None]:
        async with contextlib.aclosing(super().watch(*what, **how)) as changes:
            async for change in changes:
                if self.absent:  # a connection that was open breaks, too
                    raise errors.Unavailable(0, "", "connection reset by the test")
                yield change

    async def stream(self, path: str, **more: Any) -> AsyncGenerator[bytes, None]:
        if self.absent:
            raise errors.Unavailable(0, "", "connection refused by the test")
        if self.steps is not None:
            await self.steps.reach("before GET log")
        async with contextlib.aclosing(super().stream(path, **more)) as pieces:
            async for piece in pieces:
                yield piece
        if self.steps is not None:
            await self.steps.reach("after GET log")


class PodSubject(executor_world.Subject):
    """Executor `pod` on the embedded Kubernetes with its local node."""

    creates, deletes, releases = "POST pod", "DELETE pod", "PATCH pod"

    def __init__(self, admin: client.Client) -> None:
        self._admin = admin
        self._absent = False
        self._manager: SteppingClient | None = None

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        containers = [{"name": "main", "image": "label", "command": ["sh", "-c", script]}]
        return api_task.TaskSpec(
            pod=api_task.PodTemplate(
                spec={"containers": containers, "automountServiceAccountToken": False}
            ),
            **more,
        )

    def life(self, steps: executor_world.Steps) -> executor_world.Life:
        known: cache.Cache[pod.Pod] = cache.Cache()
        kube = SteppingClient(self._admin.config, user_agent="manager")
        kube.steps, kube.absent = steps, self._absent
        self._manager = kube
        made = pod_executor.PodExecutor(kube, known)
        scope = reflector.Scope(label_selector=_OURS)
        pods = reflector.Reflector(
            kube, api_resources.PODS, pod.Pod, known, made.changed, scope=scope
        )

        async def follow() -> None:
            async with kube:
                await pods.run()

        return executor_world.Life(made, follow())

    async def pods(self) -> dict[str, dict[str, Any]]:
        """Return all Pods by name."""
        listed = await self._admin.list(api_resources.PODS, NS, type=dict)
        return {found["metadata"]["name"]: found for found in listed.items}

    async def objects(self) -> list[str]:
        return sorted(await self.pods())

    async def held(self) -> list[str]:
        found = (await self.pods()).items()
        return [name for name, one in found if one["metadata"].get("finalizers")]

    async def remove(self, name: str, *, by_force: bool) -> None:
        grace = 0 if by_force else None
        await self._admin.delete(api_resources.PODS, name, NS, grace_s=grace)
        if by_force:
            with contextlib.suppress(errors.NotFound):
                change = {"metadata": {"finalizers": None}}
                await self._admin.merge_patch(api_resources.PODS, name, change, NS)

    async def occupy(self, attempt: port.Attempt) -> str:
        name = template.pod_name(attempt.name, attempt.ref)
        containers = [{"name": "main", "image": "label", "command": ["sleep", "300"]}]
        body = {"metadata": {"name": name}, "spec": {"containers": containers}}
        await self._admin.create(api_resources.PODS, body, NS)
        return name

    async def create_late(self, attempt: port.Attempt) -> None:
        await self._admin.create(api_resources.PODS, template.pod(attempt), NS)

    async def is_unchanged(self, name: str) -> bool:
        found = (await self.pods())[name]
        metadata = found["metadata"]
        return not metadata.get("deletionTimestamp") and not metadata.get("labels")

    async def absent(self, *, now: bool) -> None:
        self._absent = now
        assert self._manager is not None
        self._manager.absent = now


class ProcessExecutor:
    """Executor that runs an attempt as a process group of this machine, with its state in a
    directory.

    Files of the directory: `begun` (we have created it), `pid` (its program was started), `code`
    (how the program ended), `deleting` (its deletion was requested), `kept` (keeps it from being
    removed).
    """

    name = template.EXECUTOR  # it takes the place of the one that `spec.pod` names

    def __init__(self, home: "ProcessSubject", steps: executor_world.Steps) -> None:
        self._home = home
        self._steps = steps

    def watch(self, wake: port.Wake) -> None:
        for ref in self._home.left():
            wake(ref)

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> port.Attempt | None:
        return self._home.left().get(ref) if known else None

    async def ensure(self, attempt: port.Attempt) -> port.Observation:
        directory = await self._directory(attempt)
        if not directory.exists():
            if attempt.began:
                return _over(attempts.Ending.LOST, reasons.Reason.POD_LOST)
            await self._steps.reach("before create")
            new = self._home.directory / f".{directory.name}"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            (new / "kept").touch()
            (new / "begun").write_bytes(msgspec.json.encode(attempt.ref))
            new.rename(directory)  # all of it at once, as an API server creates
            assert attempt.spec.pod is not None
            [container] = attempt.spec.pod.spec["containers"]
            self._home.run(directory, attempt, container["command"])
            await self._steps.reach("after create")
        return self._judge(directory, None)

    async def observe(self, attempt: port.Attempt) -> port.Observation:
        return self._judge(await self._directory(attempt), None)

    async def stop(self, attempt: port.Attempt, how: port.Stop) -> port.Observation:
        directory = await self._directory(attempt)
        seen = self._judge(directory, how)
        if seen.outcome is None:
            await self._steps.reach("before delete")
            self._home.delete(directory, grace_s=how.grace_s)
            await self._steps.reach("after delete")
        return seen

    async def result(self, attempt: port.Attempt) -> attempts.Payload | None:
        return None

    async def release(self, attempt: port.Attempt) -> None:
        directory = await self._directory(attempt)
        await self._steps.reach("before release")
        if (directory / "begun").exists():
            shutil.rmtree(directory)
        await self._steps.reach("after release")

    async def _directory(self, attempt: port.Attempt) -> Path:
        await asyncio.sleep(0)
        if self._home.gone:
            raise errors.Unavailable(0, "", "made unavailable by the test")
        return self._home.of(attempt)

    def _judge(self, directory: Path, stop: port.Stop | None) -> port.Observation:
        if not directory.exists():
            if stop is not None:
                return _over(attempts.Ending.STOPPED, stop.reason)
            return _over(attempts.Ending.LOST, reasons.Reason.POD_LOST)
        if not (directory / "begun").exists():
            if stop is not None:
                return _over(attempts.Ending.STOPPED, stop.reason)
            return _over(attempts.Ending.FAILED, reasons.Reason.NAME_TAKEN, may_retry=False)
        deleted = (directory / "deleting").exists()
        if (directory / "code").exists():
            code = int((directory / "code").read_text())
            if deleted and stop is not None:
                return _over(attempts.Ending.STOPPED, stop.reason, exit_code=code)
            if code == 0:
                return _over(attempts.Ending.SUCCEEDED, reasons.Reason.SUCCEEDED, exit_code=0)
            if deleted:
                return _over(attempts.Ending.LOST, reasons.Reason.POD_LOST, exit_code=code)
            return _over(attempts.Ending.FAILED, reasons.Reason.NON_ZERO_EXIT, exit_code=code)
        return port.Observation(
            phase=port.Phase.RUNNING,
            reason=reasons.Reason.STARTED,
            node="here",
            started=directory.stat().st_ctime,
            check_s=POLL_S,
        )


def _over(ending: attempts.Ending, reason: str, **more: Any) -> port.Observation:
    outcome = attempts.Outcome(ending, reason, **more)
    return port.Observation(phase=port.Phase.OVER, reason=reason, outcome=outcome)


class ProcessSubject(executor_world.Subject):
    """The directories and processes of a `ProcessExecutor`; plays the node that runs them."""

    creates, deletes, releases = "create", "delete", "release"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.gone = False
        directory.mkdir()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        containers = [{"name": "main", "image": "label", "command": ["sh", "-c", script]}]
        return api_task.TaskSpec(pod=api_task.PodTemplate(spec={"containers": containers}), **more)

    def life(self, steps: executor_world.Steps) -> executor_world.Life:
        return executor_world.Life(ProcessExecutor(self, steps))

    def of(self, attempt: port.Attempt) -> Path:
        """Return the directory of an attempt."""
        return self.directory / template.pod_name(attempt.name, attempt.ref)

    def left(self) -> dict[attempts.AttemptRef, port.Attempt]:
        """Return what exists, by attempt."""
        found = {}
        for begun in self.directory.glob("*/begun"):
            ref = msgspec.json.decode(begun.read_bytes(), type=attempts.AttemptRef)
            name = begun.parent.name.partition("-")[0]
            found[ref] = port.Attempt(
                ref=ref, namespace=NS, name=name, owner_uid="", spec=self.spec(""), began=True
            )
        return found

    def run(self, directory: Path, attempt: port.Attempt, command: list[str]) -> None:
        """Start the program, whether or not a manager runs, as a node does."""
        wanted = template.pod(attempt)["spec"]["containers"][0]["env"]
        environment = {entry["name"]: entry["value"] for entry in wanted}
        process = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], **environment}, start_new_session=True
        )
        self._running[directory.name] = process
        self._later(self._watch(directory, process))

    def delete(self, directory: Path, *, grace_s: float) -> None:
        """Send SIGTERM, then SIGKILL after the grace period."""
        (directory / "deleting").touch()
        process = self._running.get(directory.name)
        if process is not None:
            self._signal(process, signal.SIGTERM)
            self._later(self._kill(process, grace_s))

    async def objects(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    async def held(self) -> list[str]:
        return [path.parent.name for path in self.directory.glob("*/kept")]

    async def remove(self, name: str, *, by_force: bool) -> None:
        directory = self.directory / name
        self.delete(directory, grace_s=1.0)
        if by_force:
            shutil.rmtree(directory)

    async def occupy(self, attempt: port.Attempt) -> str:
        directory = self.of(attempt)
        directory.mkdir()
        (directory / "note").write_text("mine")
        return directory.name

    async def is_unchanged(self, name: str) -> bool:
        return [path.name for path in (self.directory / name).iterdir()] == ["note"]

    async def absent(self, *, now: bool) -> None:
        self.gone = now

    async def close(self) -> None:
        """Kill all programs."""
        for process in self._running.values():
            self._signal(process, signal.SIGKILL)
        await asyncio.gather(*self._waiting)

    def _later(self, work: Any) -> None:
        waits = asyncio.ensure_future(work)
        self._waiting.add(waits)
        waits.add_done_callback(self._waiting.discard)

    async def _watch(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            await asyncio.sleep(POLL_S)
        if directory.exists():
            (directory / ".code").write_text(str(process.returncode))
            (directory / ".code").rename(directory / "code")

    async def _kill(self, process: subprocess.Popen[bytes], grace_s: float) -> None:
        for _ in range(int(grace_s / POLL_S)):
            if process.poll() is not None:
                return
            await asyncio.sleep(POLL_S)
        self._signal(process, signal.SIGKILL)

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


@contextlib.asynccontextmanager
async def on_pods(directory: Path) -> AsyncIterator[PodSubject]:
    """Run executor `pod` on a new control plane with a node."""
    async with embedded_server.admin_beside_node(directory, node=True) as admin:
        yield PodSubject(admin)


@contextlib.asynccontextmanager
async def on_processes(directory: Path) -> AsyncIterator[ProcessSubject]:
    """Run the executor that is made for tests."""
    made = ProcessSubject(directory / "objects")
    try:
        yield made
    finally:
        await made.close()
