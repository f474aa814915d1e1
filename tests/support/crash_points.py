"""Managers that crash after each kind of write once, so that each write is tried as a crash point.

`CrashingClient` is the Kubernetes client of such a manager, `CrashingFlows` its flow engine.
`CrashLog` outlives the managers and records after which writes one has crashed. Used by tests of
the SyncSet controller.
"""

from typing import Any

import msgspec

from kilnwork.api import api_resources
from support import fake_flows

Step = tuple[str, ...]


class ManagerDied(Exception):
    """Raised in place of the crash of the manager."""


class CrashLog:
    """Record of crash points. `died` has the steps after which a manager crashed, in order; `dead`
    is True once the newest manager has.
    """

    def __init__(self) -> None:
        self.died: dict[Step, None] = {}
        self.dead = False

    def alive(self) -> None:
        """Raise ManagerDied if the manager has crashed."""
        if self.dead:
            raise ManagerDied

    def after(self, *step: str) -> None:
        """Raise ManagerDied the first time that this step is passed."""
        if step not in self.died:
            self.died[step] = None
            self.dead = True
            raise ManagerDied(" ".join(step))


class CrashingClient:
    """Client whose writes are crash points. Reads are not."""

    def __init__(self, kube: Any, deaths: CrashLog) -> None:
        self._kube, self._deaths = kube, deaths

    def __getattr__(self, name: str) -> Any:
        self._deaths.alive()
        found = getattr(self._kube, name)
        if name not in ("create", "replace", "merge_patch", "json_patch", "apply", "delete"):
            return found

        async def step(kind: api_resources.Resource, about: Any, *more: Any, **options: Any) -> Any:
            response = await found(kind, about, *more, **options)
            self._deaths.after(name, kind.plural, *_words(kind, about))
            return response

        return step


class CrashingFlows:
    """Flow engine whose calls are crash points; the engine `flows` behind it lives on."""

    def __init__(self, flows: fake_flows.FakeFlows, deaths: CrashLog) -> None:
        self._flows, self._deaths = flows, deaths

    def __getattr__(self, name: str) -> Any:
        self._deaths.alive()
        found = getattr(self._flows, name)
        if name not in ("start", "kill", "forget", "retry", "suspend"):
            return found

        async def step(about: Any, **options: Any) -> Any:
            response = await found(about, **options)
            self._deaths.after(name, "flow", f"{about.generation}", *map(str, options.values()))
            return response

        return step


def _words(kind: api_resources.Resource, about: Any) -> Step:
    """Return the name of the written object, with the written phase and reason."""
    if kind == api_resources.EVENTS:
        return ()
    if isinstance(about, str):
        return (about,)
    body = msgspec.to_builtins(about)
    status = body.get("status") or {}
    words = (body["metadata"]["name"], status.get("phase"), status.get("reason"))
    return tuple(word for word in words if word)
