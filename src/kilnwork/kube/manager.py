"""Starts and stops all services, reflectors and controllers of a process, in a fixed order.

Used by `cli.wiring`, the controllers and the local node. Start: services, then reflectors, then
(with full caches) controllers. Stop: the reverse. It has no logic of its own.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from kilnwork.kit import coroutines
from kilnwork.kube import controller, errors, reflector

log = logging.getLogger(__name__)


class Service(Protocol):
    """A service that controllers use, such as the recorder of kube events or the hub."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Stop the service; called once, after all its users have stopped."""
        ...


class Manager:
    """A set of services, reflectors and controllers that are started and stopped together.

    `on_failure(name, error)` is called if a part ends that should run for ever; by default the
    failure is logged.
    """

    def __init__(
        self,
        name: str = "manager",
        *,
        on_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self._background = coroutines.BackgroundWork(name, on_failure=on_failure)
        self._services: list[Service] = []
        self._reflectors: list[reflector.Reflector[Any]] = []
        self._controllers: list[controller.Controller] = []
        self._started: list[Callable[[], Any]] = []

    def add_service(self, *services: Service) -> None:
        """Add services, which are started in this order."""
        self._services.extend(services)

    def add_reflector(self, *reflectors: reflector.Reflector[Any]) -> None:
        """Add reflectors; all reflectors must be synced before any controller starts."""
        self._reflectors.extend(reflectors)

    def add_controller(self, *controllers: controller.Controller) -> None:
        """Add controllers, which are started in this order."""
        self._controllers.extend(controllers)

    async def start(self, *, sync_timeout_s: float = 30.0) -> None:
        """Start all parts; if one of them fails, stop the parts that have started and raise its
        error.

        Raises NotSynced, with resources and their problems, if the caches are not full in time.
        """
        try:
            for service in self._services:
                # Before `start`, so that a service that fails half-way is stopped as well.
                self._started.append(service.stop)
                await service.start()
            self._started.append(self._background.stop)
            for followed in self._reflectors:
                self._background.start(f"reflector {followed.resource.qualified}", followed.run())
            await self._wait_synced(sync_timeout_s)
            for loop in self._controllers:
                self._started.append(loop.stop)
                await loop.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the started parts in reverse order; continue if stopping a part fails."""
        while self._started:
            # Removed first, so that no part is stopped twice.
            stop = self._started.pop()
            try:
                await stop()
            except Exception:
                log.exception("a part did not stop cleanly")

    async def _wait_synced(self, timeout_s: float) -> None:
        waits = [
            self._background.start(f"sync {followed.resource.qualified}", followed.synced.wait())
            for followed in self._reflectors
        ]
        if waits:
            await asyncio.wait(waits, timeout=timeout_s)
        behind = [r for r in self._reflectors if not r.synced.is_set()]
        if behind:
            reasons = "; ".join(f"{r.resource.qualified}: {r.problem}" for r in behind)
            raise errors.NotSynced(f"not listed within {timeout_s:g} s: {reasons}")
