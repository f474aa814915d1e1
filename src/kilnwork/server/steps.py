"""List of a SyncSet's steps with their shards, in pages: `GET
/v1/namespaces/NS/syncsets/NAME/steps`.

Also serves `…/result`, the result of the SyncSet's flow. Mounted by `task_api`. The status of a
SyncSet has only counts of each step, and results of up to 8 KiB; this lists all instances, and
sends results of any size.
"""

from typing import Any

from kilnwork.api import kinds
from kilnwork.jobs import errors as jobs_errors
from kilnwork.jobs.flows import run_types
from kilnwork.kit import asgi, clock
from kilnwork.server import errors, object_authorization, ports

MAX_LIMIT = 1000
DEFAULT_LIMIT = 500
MAX_GENERATION = 1 << 31


class Steps:
    """Handler of requests for the steps and the result of a SyncSet. `flows`, `rights`: ports."""

    def __init__(self, flows: ports.Flows, rights: ports.Rights) -> None:
        self._flows = flows
        self._rights = rights

    async def send(
        self, request: asgi.Request, namespace: str, name: str, *, response: asgi.Response
    ) -> None:
        """Send a page of step instances. The caller needs the right to `get` the SyncSet.

        Parameters of the request: `step`, `state`, `generation` (default: the newest), `after`,
        `limit`.
        """
        await self._check(request, namespace, name)
        limit = request.number("limit", least=1, most=MAX_LIMIT) or DEFAULT_LIMIT
        state = _state(request)
        key = self._key(request, namespace, name)
        try:
            found = await self._flows.steps(
                key,
                step=request.query.get("step") or "",
                after=request.query.get("after") or "",
                limit=limit + 1,
                state=state,
            )
        except jobs_errors.NoSuchJob:
            found = []  # the flow has not begun, or is deleted
        page: dict[str, Any] = {"items": [document(one) for one in found[:limit]]}
        if len(found) > limit:
            page["after"] = found[limit - 1].key
        await response.json(page)

    async def send_result(
        self, request: asgi.Request, namespace: str, name: str, *, response: asgi.Response
    ) -> None:
        """Send the result of a flow as JSON; `generation` defaults to the newest. The caller needs
        the right to `get` the SyncSet."""
        await self._check(request, namespace, name)
        key = self._key(request, namespace, name)
        view = self._flows.view(key)
        which = f"generation {key.generation} of SyncSet {name}"
        if view is None:
            raise errors.NotFound(f"the flow of {which} has not begun, or is not kept any more")
        if view.phase is not run_types.FlowPhase.SUCCEEDED:
            raise errors.NotFound(f"{which} has no result: its flow is {view.phase}")
        await response.json(view.value)

    async def _check(self, request: asgi.Request, namespace: str, name: str) -> None:
        await object_authorization.check(
            request, self._rights, resource=kinds.SYNC_SETS, namespace=namespace, name=name
        )

    def _key(self, request: asgi.Request, namespace: str, name: str) -> run_types.FlowKey:
        """Return the key of the requested generation."""
        generation = request.number("generation", least=1, most=MAX_GENERATION)
        newest = self._flows.newest(namespace, name)
        if newest is None:
            raise errors.NotFound(f'there is no SyncSet "{name}" in namespace "{namespace}"')
        return run_types.FlowKey(newest.uid, generation or newest.generation)


def document(view: run_types.InstanceView) -> dict[str, Any]:
    """Return the document of one step instance, without members that have no value."""
    members = {
        "key": view.key,
        "step": view.step,
        "state": str(view.state),
        "task": view.task or None,
        "name": view.task_name or None,
        "attempt": view.attempt or None,
        "podName": view.worker or None,
        "nodeName": view.node or None,
        "reason": view.reason or None,
        "message": view.message or None,
        "reused": view.reused or None,
        "startTime": _time(view.started),
        "finishTime": _time(view.finished),
    }
    return {name: value for name, value in members.items() if value is not None}


def _state(request: asgi.Request) -> run_types.InstanceState | None:
    text = request.query.get("state") or None
    if text is None:
        return None
    try:
        return run_types.InstanceState(text)
    except ValueError as error:
        known = ", ".join(run_types.InstanceState)
        raise errors.BadRequest(f"state={text[:100]}: known states are {known}") from error


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else clock.rfc3339_micro(seconds)
