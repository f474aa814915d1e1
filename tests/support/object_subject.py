"""Subject of the executor contract for executor `customResource`: Books on the embedded Kubernetes,
and their controller.

The controller, called printer, runs the script of each Book as a process and reports its state in
the status. It runs whether or not a manager does.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import api_resources, meta, object_task
from kilnwork.api import task as api_task
from kilnwork.executors import custom_resource, port
from kilnwork.executors.custom_resource import template
from kilnwork.executors.pod import template as pods
from kilnwork.kit import clock, coroutines, http_types
from kilnwork.kube import cache, client, errors, reflector
from support import embedded_server, executor_world, waiting

NS = executor_world.NS
BOOKS = api_resources.Resource(
    group="my.custom.domain", version="v1alpha1", kind="Book", plural="books", singular="book"
)
PRINTER = "my.custom.domain/printer"
GRACE_S = 1.0
LARGE = "x" * 70_000
"""Size above the limit of results that are not blobs."""

DEFINITION = {
    "metadata": {"name": BOOKS.qualified},
    "spec": {
        "group": BOOKS.group,
        "scope": "Namespaced",
        "names": {"kind": BOOKS.kind, "plural": BOOKS.plural},
        "versions": [
            {
                "name": BOOKS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}

RESULT = object_task.ObjectResult(
    success_condition='.status.phase == "Succeeded"',
    failure_condition='.status.phase == "Failed"',
    running_condition='.status.phase == "Running"',
)


def book(script: str, **metadata: Any) -> dict[str, Any]:
    """Return a Book whose program is a shell script, and which has a finalizer of the printer."""
    return {
        "apiVersion": BOOKS.api_version,
        "kind": BOOKS.kind,
        "metadata": {"finalizers": [PRINTER], **metadata},
        "spec": {"script": script},
    }


class SteppingClient(client.Client):
    """A client whose requests about objects are steps, and whose server can be made unavailable."""

    kind = BOOKS
    steps: executor_world.Steps | None = None
    absent = False

    async def raw(self, method: str, path: str, **more: Any) -> http_types.ClientResponse:
        if self.absent:
            raise errors.Unavailable(0, "", "connection refused by the test")
        looks = method == "GET" and f"/{self.kind.plural}/" not in path
        if self.steps is None or looks:
            return await super().raw(method, path, **more)
        what = self.step(method, more.get("body"))
        await self.steps.reach(f"before {what}")
        response = await super().raw(method, path, **more)
        await self.steps.reach(f"after {what}")
        return response

    def step(self, method: str, body: bytes | None) -> str:
        """Return the step name of a request."""
        return f"{method} {self.kind.singular}"

    async def watch(self, *given: Any, **more: Any) -> AsyncGenerator[Any, None]:
        async with contextlib.aclosing(super().watch(*given, **more)) as changes:
            async for change in changes:
                if self.absent:
                    raise errors.Unavailable(0, "", "the connection is cut by the test")
                yield change


class Printer:
    """The controller of Books; `run` is its main loop."""

    kind = BOOKS
    subresource: str | None = "status"
    """Subresource for its status; None if the kind has none."""

    def __init__(self, kube: client.Client) -> None:
        self._client = kube
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._ended: set[str] = set()
        self._background = coroutines.BackgroundWork("printer")

    async def run(self) -> None:
        known: cache.Cache[dict[str, Any]] = cache.Cache()
        books = reflector.Reflector(self._client, self.kind, dict, known, self._changed)
        try:
            await books.run()
        finally:
            for process in self._running.values():
                self._signal(process, signal.SIGKILL)
            await asyncio.gather(*(process.wait() for process in self._running.values()))
            await self._background.stop()

    def _changed(self, key: tuple[str, str], old: Any, new: Any) -> None:
        seen = new or old
        labels = seen["metadata"].get("labels") or {}
        if pods.TASK_LABEL in labels:
            self._background.start(key[1], self.reconcile(seen, is_there=new is not None))

    async def reconcile(self, seen: dict[str, Any], *, is_there: bool) -> None:
        uid = seen["metadata"]["uid"]
        if not is_there or template.is_terminating(seen):
            self._ended.add(uid)
            await self._end(seen)
        elif uid not in self._running and uid not in self._ended:
            self._ended.add(uid)  # begun: never again
            await self._print(seen)

    def script(self, seen: dict[str, Any]) -> str:
        """Return the program of an object."""
        return str(seen["spec"]["script"])

    async def _print(self, seen: dict[str, Any]) -> None:
        labels = seen["metadata"]["labels"]
        variables = {
            "PATH": os.environ["PATH"],
            "KILN_TASK_ID": labels[pods.TASK_LABEL],
            "KILN_RUN": labels[pods.RUN_LABEL],
            "KILN_ATTEMPT": labels[pods.ATTEMPT_LABEL],
        }
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", self.script(seen), env=variables, start_new_session=True
        )
        self._running[seen["metadata"]["uid"]] = process
        await self.say(seen, {"phase": "Running"})
        code = await process.wait()
        phase = {"phase": "Failed" if code else "Succeeded", "code": code}
        await self.say(seen, {**phase, **self.outputs(seen)})

    def outputs(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Return the result for the status of an object."""
        return {"pages": seen["spec"].get("pages")}

    async def _end(self, seen: dict[str, Any]) -> None:
        process = self.signal(seen, signal.SIGTERM)
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), GRACE_S)
            except TimeoutError:
                self._signal(process, signal.SIGKILL)
                await process.wait()
        if PRINTER not in (seen["metadata"].get("finalizers") or ()):
            return
        others = [one for one in seen["metadata"]["finalizers"] if one != PRINTER]
        await self._patch(seen, {"metadata": {"finalizers": others}})

    def signal(self, seen: dict[str, Any], number: int) -> asyncio.subprocess.Process | None:
        """Send a signal to the program of an object and return it; None if it does not run."""
        process = self._running.get(seen["metadata"]["uid"])
        if process is None or process.returncode is not None:
            return None
        self._signal(process, number)
        return process

    async def say(self, seen: dict[str, Any], status: dict[str, Any]) -> None:
        """Write the status of an object."""
        observed = {**status, "observedGeneration": seen["metadata"]["generation"]}
        await self._patch(seen, {"status": observed}, subresource=self.subresource)

    async def _patch(
        self, seen: dict[str, Any], patch: dict[str, Any], *, subresource: str | None = None
    ) -> None:
        name = seen["metadata"]["name"]
        with contextlib.suppress(errors.NotFound):
            await self._client.merge_patch(self.kind, name, patch, NS, subresource=subresource)

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


class ObjectSubject(executor_world.Subject):
    """Executor `customResource` on the embedded Kubernetes."""

    creates, deletes, releases = "POST book", "DELETE book", "PATCH book"
    without = ("Pending", "ExecutorUnavailable", "no executor customResource")
    failed = "ObjectFailed"
    knows_programs = False

    kind = BOOKS
    client_type = SteppingClient
    """Of the manager."""

    def __init__(self, admin: client.Client) -> None:
        self._admin = admin
        self.accounts: cache.Cache[meta.Partial] = cache.Cache()
        """ServiceAccounts that the manager knows."""
        self.blobs: Path | None = None
        """Where large results are put."""
        self._absent = False
        self._manager: SteppingClient | None = None

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        given = object_task.CustomResource(manifest=book(script), result=RESULT)
        return api_task.TaskSpec(custom_resource=given, **more)

    def too_large(self, script: str, **more: Any) -> api_task.TaskSpec:
        manifest = book(script)
        manifest["spec"]["pages"] = LARGE
        result = msgspec.structs.replace(RESULT, json_path=".status.pages")
        given = object_task.CustomResource(manifest=manifest, result=result)
        return api_task.TaskSpec(custom_resource=given, **more)

    def executor(self, kube: client.Client, shared: custom_resource.Shared) -> Any:
        """Return the executor of a manager."""
        return custom_resource.ObjectExecutor(kube, custom_resource.RuleReader(), shared)

    def life(self, steps: executor_world.Steps) -> executor_world.Life:
        kube = self.client_type(self._admin.config, user_agent="manager")
        kube.steps, kube.absent = steps, self._absent
        self._manager = kube
        kinds = custom_resource.Kinds(kube, custom_resource.AllowedKinds([self.kind.qualified]))
        objects = custom_resource.Follower(kube)
        shared = custom_resource.Shared(
            kinds=kinds,
            objects=objects,
            accounts=self.accounts,
            time=clock.SystemClock(),
            blobs=self.blobs,
        )
        made = self.executor(kube, shared)

        async def follow() -> None:
            async with kube:
                await objects.run(kinds)

        return executor_world.Life(made, follow())

    async def books(self) -> dict[str, dict[str, Any]]:
        """Return all Books by name."""
        listed = await self._admin.list(self.kind, NS, type=dict)
        return {found["metadata"]["name"]: found for found in listed.items}

    async def objects(self) -> list[str]:
        return sorted(await self.books())

    async def held(self) -> list[str]:
        found = (await self.books()).items()
        return [name for name, one in found if template.is_held(one)]

    async def reports_ends(self) -> bool:
        phases = [(one.get("status") or {}).get("phase") for one in (await self.books()).values()]
        return "Running" not in phases

    async def remove(self, name: str, *, by_force: bool) -> None:
        await self._admin.delete(self.kind, name, NS)
        if by_force:
            with contextlib.suppress(errors.NotFound):
                change = {"metadata": {"finalizers": None}}
                await self._admin.merge_patch(self.kind, name, change, NS)

    def manifest(self, script: str, **metadata: Any) -> dict[str, Any]:
        """Return an object whose program is a shell script."""
        return book(script, **metadata)

    async def occupy(self, attempt: port.Attempt) -> str:
        name = template.wanted(attempt, str(attempt.spec.executor)).name
        await self._admin.create(self.kind, self.manifest("sleep 300", name=name), NS)
        return name

    async def create_late(self, attempt: port.Attempt) -> None:
        body = template.wanted(attempt, str(attempt.spec.executor)).body
        await self._admin.create(self.kind, body, NS)

    async def is_unchanged(self, name: str) -> bool:
        metadata = (await self.books())[name]["metadata"]
        return not metadata.get("deletionTimestamp") and not metadata.get("labels")

    async def absent(self, *, now: bool) -> None:
        self._absent = now
        assert self._manager is not None
        self._manager.absent = now


async def define(
    admin: client.Client,
    definition: dict[str, Any] = DEFINITION,
    kind: api_resources.Resource = BOOKS,
) -> None:
    """Install a definition and wait until its kind is served; Books by default."""
    await admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, definition)

    async def served() -> bool:
        try:
            await admin.list(kind, NS, type=dict)
        except errors.NotFound:
            return False
        return True

    await waiting.wait_until_async(served, what=f"{kind.qualified} are served")


@contextlib.asynccontextmanager
async def running_printer(
    admin: client.Client, controller: type[Printer] = Printer
) -> AsyncIterator[None]:
    """Run a printer, or another controller that runs programs."""
    background = coroutines.BackgroundWork("printing")
    background.start("printer", controller(admin).run())
    try:
        yield
    finally:
        await background.stop()


@contextlib.asynccontextmanager
async def on_objects(directory: Path) -> AsyncIterator[ObjectSubject]:
    """Run executor `customResource` on a new control plane, with Books and their printer."""
    async with embedded_server.admin_beside_node(directory) as admin:
        await define(admin)
        async with running_printer(admin):
            yield ObjectSubject(admin)
