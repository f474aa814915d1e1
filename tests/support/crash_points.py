"""Managers that die after each thing that they do for the first time, and never come further.

`Mortal` is the client of one such manager, `MortalFlows` its engine of flows; `Deaths` outlives
them, and knows after what one has died already. Used by tests of the SyncSet controller.
"""

from typing import Any

import msgspec

from kilnwork.api import resource
from support import fake_flows

Step = tuple[str, ...]


class ManagerDied(Exception):
    """The manager is gone in the middle of what it does."""


class CrashLog:
    """`died`: the steps after which a manager has died, in order. `dead`: the newest one has."""

    def __init__(self) -> None:
        self.died: dict[Step, None] = {}
        self.dead = False

    def alive(self) -> None:
        """Raises ManagerDied."""
        if self.dead:
            raise ManagerDied

    def after(self, *step: str) -> None:
        """Raises ManagerDied, the first time."""
        if step not in self.died:
            self.died[step] = None
            self.dead = True
            raise ManagerDied(" ".join(step))


class CrashingClient:
    """See the module. What is only read is no step."""

    def __init__(self, kube: Any, deaths: CrashLog) -> None:
        self._kube, self._deaths = kube, deaths

    def __getattr__(self, name: str) -> Any:
        self._deaths.alive()
        found = getattr(self._kube, name)
        if name not in ("create", "replace", "merge_patch", "json_patch", "apply", "delete"):
            return found

        async def step(kind: resource.Resource, about: Any, *more: Any, **options: Any) -> Any:
            response = await found(kind, about, *more, **options)
            self._deaths.after(name, kind.plural, *_words(kind, about))
            return response

        return step


class CrashingFlows:
    """See the module. `flows`: the engine, which lives on."""

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


def _words(kind: resource.Resource, about: Any) -> Step:
    """Of what it is: its name, and the phase and reason that are written of it."""
    if kind == resource.EVENTS:
        return ()
    if isinstance(about, str):
        return (about,)
    body = msgspec.to_builtins(about)
    status = body.get("status") or {}
    words = (body["metadata"]["name"], status.get("phase"), status.get("reason"))
    return tuple(word for word in words if word)
