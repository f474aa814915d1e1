"""Controllers with a real hub and journal, an API server and a node, for tests of pod tasks."""

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kilnwork import controllers
from kilnwork.api import api_resources, kinds
from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster
from kilnwork.controlplane.node import shim_container
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kit import clock, http_types, ids, processes
from kilnwork.kube import client, errors
from support import controller_world, empty_job_hub, verifiers, waiting

NS = controller_world.NS


class RefusingClient(client.Client):
    """A manager's client whose first creations of Pods are refused.

    `before_delete` is called before a deletion is sent, or before a Workflow is asked to stop.
    """

    refusals: list[errors.ApiError]
    before_delete: Callable[[], Awaitable[None]] | None = None

    async def raw(self, method: str, path: str, **more: Any) -> http_types.ClientResponse:
        if method == "POST" and path.endswith("/pods") and self.refusals:
            raise self.refusals.pop(0)
        ends = method == "DELETE" or b'"shutdown"' in (more.get("body") or b"")
        if ends and self.before_delete is not None:
            happens, self.before_delete = self.before_delete, None
            await happens()
        return await super().raw(method, path, **more)


class World:
    """A control plane with a node, and a manager that can be ended and restarted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.refusals: list[errors.ApiError] = []
        self.journal = directory / "journal.db"
        self.settings = controller_world.SETTINGS
        self.options = hubs.HubOptions(lease_s=2.0)
        self.plane = cluster.ControlPlane(
            cluster.ControlPlaneSettings(
                data_dir=directory,
                port=0,
                workdir=directory,
                node_name="n1",
                installed=embedded_crds.EXTENSIONS,
            )
        )
        self.kube: client.Client
        self.hub: hubs.Hub
        self.manager: RefusingClient
        self.controllers: controllers.Controllers
        self._manager = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Start a manager."""
        self.manager = RefusingClient(self.plane.admin_config(), user_agent="manager")
        self.manager.refusals = self.refusals
        await self._manager.enter_async_context(self.manager)
        self.controllers = made = controllers.Controllers(
            self.manager, self.settings, time=clock.SystemClock()
        )
        secret = "secret" if made.claims is None else made.claims.token
        self.hub = hubs.Hub(
            journal.Journal(self.journal),
            clock=clock.SystemClock(),
            verifier=verifiers.OneSecret(secret),
            logs_dir=self.directory / "logs",
            entropy=ids.system_entropy(),
            options=self.options,
        )
        await self.hub.start(self.directory / "c.sock")
        self._manager.push_async_callback(self.hub.stop)
        await made.start(self.hub, empty_job_hub.engine())
        self._manager.push_async_callback(made.stop)

    async def end(self) -> None:
        """End the manager."""
        await self._manager.aclose()

    async def task(self, name: str, script: str = "true", **spec: Any) -> str:
        """Declare a Task whose Pod runs a shell script; return its uid."""
        body = {"containers": [worker_container(script)], "automountServiceAccountToken": False}
        spec = {"pod": {"spec": {**body, **spec.pop("pod", {})}}, **spec}
        spec.setdefault("timeouts", {"killGraceSeconds": 1})
        made = await self.kube.create(
            kinds.TASKS, controller_world.body(kinds.TASKS, name, spec=spec), NS
        )
        return str(made["metadata"]["uid"])

    async def status(self, name: str) -> dict[str, Any]:
        return (await self.kube.get(kinds.TASKS, name, NS)).get("status") or {}

    async def wait_for_state(
        self, name: str, state: str, reason: str | None = None
    ) -> dict[str, Any]:
        """Wait until a Task has this state and reason; return its status."""
        last: dict[str, Any] = {}

        async def look() -> bool:
            nonlocal last
            last = await self.status(name)
            return last.get("state") == state and reason in (None, last.get("reason"))

        try:
            await waiting.wait_until_async(look, what=f"{state}/{reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {last}") from None
        return last

    async def pods(self) -> list[dict[str, Any]]:
        """Return all Pods."""
        listed = await self.kube.list(api_resources.PODS, NS, type=dict)
        return list(listed.items)

    async def wait_for_no_pods(self) -> None:
        async def none() -> bool:
            return not await self.pods()

        await waiting.wait_until_async(none, what="no Pod is left")


def worker_container(script: str, name: str = "main") -> dict[str, Any]:
    return {"name": name, "image": "label", "command": ["sh", "-c", script]}


def programs(pod: dict[str, Any]) -> set[int]:
    """Return the pids of the processes in the container of a Pod."""
    return processes.find_members(
        None, marker=f"{shim_container.MARKER}={pod['metadata']['uid']}/main/0"
    )
