"""Executor of attempts that are ephemeral containers: it adds them to the Pods of workers, and
follows them.

Used by `controllers.attempts` through `executors.port`. Reads from the cache that a watch of Pods
fills, and asks the API server itself before it concludes that a container does not exist.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec

from kilnwork.api import api_resources, attempts, meta, pod, task
from kilnwork.executors import container_logs, port
from kilnwork.executors.ephemeral import limits, observation, template
from kilnwork.kit import http_types
from kilnwork.kube import cache, client, errors

ADD_TRIES = 6
ADD_AGAIN_S = 0.01
"""Unit in seconds of the delays before the addition of a container is tried again: 2 units, then 4,
and so on. The patch for the first container of a Pod creates the list, later patches append to it,
so that one of two concurrent first patches fails."""

LOOK_S = 1.0
"""Interval in seconds at which a worker is asked again to end a container that has not ended."""

Kill = Callable[[str, attempts.AttemptRef, str], bool]
"""Asks the worker of a Pod (by uid) to end the container (by id) of an attempt. Returns False if
that is not possible now."""


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Container(msgspec.Struct, frozen=True):
    name: str
    env: tuple[_Variable, ...] = ()

    @property
    def variables(self) -> Iterator[tuple[str, str]]:
        return ((one.name, one.value) for one in self.env)


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    ephemeral_containers: tuple[_Container, ...] = ()


class _PodOfVariables(msgspec.Struct, frozen=True):
    """A Pod as it is decoded here: only the environment variables that say for which attempt each
    ephemeral container was added.
    """

    metadata: meta.ObjectMeta
    spec: _Spec = _Spec()


class EphemeralExecutor:
    """An executor whose attempts are ephemeral containers of workers' Pods.

    Implements `port.Executor`, `port.RunsInWorkers`, `port.WatchesAttempts` and `port.ReadsLogs`.
    `pods`: cache of a reflector of the Pods that kilnwork created, which calls `changed`.
    """

    name = template.EXECUTOR
    in_workers = True

    def __init__(self, kube: client.Client, pods: cache.Cache[pod.Pod]) -> None:
        self._client = kube
        self._pods = pods
        self._wake: port.Wake = port.ignore_wake
        self._kill: Kill = lambda pod_uid, ref, container: False
        self._sizes: dict[str, int] = {}
        """Size in bytes of each Pod by uid, when the Pod was last written."""
        self._deadlines: dict[attempts.AttemptRef, float] = {}
        """When the container of an attempt that is to end is killed, by the clock of the event
        loop."""
        self._left: dict[attempts.AttemptRef, tuple[str, str]] = {}
        """Namespace and name of the Pod of each container that has not ended."""
        self._ours: set[attempts.AttemptRef] = set()
        """Attempts whose container is known to have been added for them."""

    def use(self, kill: Kill) -> None:
        """Set the function by which workers are asked to kill containers."""
        self._kill = kill

    def watch(self, wake: port.Wake) -> None:
        self._wake = wake

    def changed(self, key: tuple[str, str], old: pod.Pod | None, new: pod.Pod | None) -> None:
        """Wake the attempts in a Pod that was created, changed or removed."""
        seen = new or old
        if seen is None or not seen.spec.ephemeral_containers:
            return
        if new is None:
            self._sizes.pop(seen.metadata.uid, None)
        for ref, over in _changes(old, new):
            if over:
                self._left.pop(ref, None)
            else:
                self._left[ref] = key
            self._wake(ref)

    def is_used_up(self, seen: pod.Pod) -> bool:
        """Return whether a worker's Pod has too many containers or bytes and must be replaced."""
        return limits.is_used_up(seen, self._sizes.get(seen.metadata.uid, 0))

    async def ensure(self, attempt: port.Attempt) -> port.Observation:
        place = _place(attempt)
        seen = await self._find(attempt)
        if seen is not None and not _has(seen, attempt) and attempt.began:
            seen = await self._read(attempt)
        if seen is None:
            return observation.lost(place.pod)
        if _has(seen, attempt):
            return await self._adopt(attempt, seen)
        if attempt.began:
            return observation.lost(place.pod)
        return await self._add(attempt, seen)

    async def observe(self, attempt: port.Attempt) -> port.Observation:
        seen = await self._find(attempt)
        return observation.lost(_place(attempt).pod) if seen is None else _judge(seen, attempt)

    async def stop(self, attempt: port.Attempt, how: port.Stop) -> port.Observation:
        """Have the worker end the container of an attempt; a container that does not exist yet is
        never added.
        """
        seen = await self._find(attempt)
        if seen is not None and not _has(seen, attempt):
            seen = await self._read(attempt)
        if seen is None:
            return observation.lost(_place(attempt).pod)
        if not _has(seen, attempt) or not await self._is_ours(attempt):
            return observation.withdrawn(how)
        observed = _judge(seen, attempt)
        if observed.outcome is not None:
            return observed
        now = asyncio.get_running_loop().time()
        left_s = self._deadlines.setdefault(attempt.ref, now + how.grace_s) - now
        if left_s <= 0 and observed.container:
            self._kill(seen.metadata.uid, attempt.ref, observed.container)
        return msgspec.structs.replace(observed, check_s=max(left_s, LOOK_S))

    async def result(self, attempt: port.Attempt) -> attempts.Payload | None:
        """Return None, because the worker reads the result of the attempt."""
        return None

    async def release(self, attempt: port.Attempt) -> None:
        """Forget an attempt whose outcome is stored; its container cannot be removed."""
        self._deadlines.pop(attempt.ref, None)
        self._ours.discard(attempt.ref)

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> port.Attempt | None:
        key = self._left.get(ref)
        seen = None if key is None else self._pods.get(key)
        if seen is None or not known:
            return None
        metadata = seen.metadata
        return port.Attempt(
            ref=ref,
            namespace=metadata.namespace,
            name="",
            owner_uid="",
            spec=task.TaskSpec(),
            began=True,
            place=port.WorkerPod(pod=metadata.name, pod_uid=metadata.uid),
        )

    async def outputs(self, attempt: port.Attempt) -> list[port.AttemptOutput]:
        seen = await self._find(attempt)
        status = None if seen is None else _status(seen, attempt)
        if status is None or status.state.started is None:
            return []
        return [
            port.AttemptOutput(name="", source=status.name, is_over=status.state.running is None)
        ]

    def logs(
        self, attempt: port.Attempt, output: port.AttemptOutput, how: port.LogRange
    ) -> AsyncGenerator[bytes, None]:
        where = (attempt.namespace, _place(attempt).pod)
        return container_logs.read(self._client, where, output.source, how)

    async def _add(self, attempt: port.Attempt, seen: pod.Pod) -> port.Observation:
        place = _place(attempt)
        made = template.container(attempt, place, seen)
        base: pod.Pod | None = seen
        for number in range(ADD_TRIES):
            if number:
                await asyncio.sleep(ADD_AGAIN_S * 2**number)
                base = await self._read(attempt)
            if base is None:
                return observation.lost(place.pod)
            if number and _has(base, attempt):
                return await self._adopt(attempt, base)
            try:
                await self._patch(attempt, base, made)
            except errors.NotFound:
                return observation.lost(place.pod)
            except errors.Invalid as error:
                # Another container was added meanwhile, which a read may not show yet; the Pod was
                # replaced; or the container is invalid, which trying again does not change.
                refusal = str(error)
                continue
            except errors.Forbidden as error:
                if "is forbidden: User " in str(error):
                    raise
                return observation.refused(str(error))
            self._ours.add(attempt.ref)
            return observation.observe(base, None)
        return observation.refused(refusal)

    async def _adopt(self, attempt: port.Attempt, seen: pod.Pod) -> port.Observation:
        """Return the observation of an attempt from a container that exists already, if that
        belongs to the attempt.
        """
        if await self._is_ours(attempt):
            return _judge(seen, attempt)
        name = template.container_name(attempt.ref)
        return observation.name_taken(seen.metadata.name, name, attempt)

    async def _is_ours(self, attempt: port.Attempt) -> bool:
        """Return whether the existing container was added for this attempt, by its environment
        variables.

        The variables are read from the API server: the cache leaves them out, since there are
        hundreds.
        """
        ref = attempt.ref
        if ref not in self._ours:
            place, name = _place(attempt), template.container_name(ref)
            try:
                seen = await self._client.get(
                    api_resources.PODS, place.pod, attempt.namespace, type=_PodOfVariables
                )
            except errors.NotFound:
                return True  # the Pod is gone, so the attempt is lost
            found = (one for one in seen.spec.ephemeral_containers if one.name == name)
            if not all(template.is_ours(ref, one.variables) for one in found):
                return False
            self._ours.add(ref)
        return True

    async def _patch(self, attempt: port.Attempt, seen: pod.Pod, made: object) -> None:
        """Add a container to a Pod by one patch.

        The response contains the whole Pod, of which only the size is used.
        """
        place = _place(attempt)
        at = "/spec/ephemeralContainers"
        listed = bool(seen.spec.ephemeral_containers)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": place.pod_uid},
            {"op": "add", "path": f"{at}/-" if listed else at, "value": made if listed else [made]},
        ]
        path = f"{api_resources.PODS.base(attempt.namespace)}/{place.pod}/ephemeralcontainers"
        response = await self._client.raw(
            "PATCH",
            path,
            body=msgspec.json.encode(operations),
            content_type=http_types.JSON_PATCH,
        )
        self._sizes[place.pod_uid] = len(response.body)

    async def _find(self, attempt: port.Attempt) -> pod.Pod | None:
        """Return the Pod of the attempt's worker from the cache, or else from the API server."""
        place = _place(attempt)
        known = self._pods.get((attempt.namespace, place.pod))
        if known is not None and known.metadata.uid == place.pod_uid:
            return known
        return await self._read(attempt)

    async def _read(self, attempt: port.Attempt) -> pod.Pod | None:
        place = _place(attempt)
        try:
            seen = await self._client.get(
                api_resources.PODS, place.pod, attempt.namespace, type=pod.Pod
            )
        except errors.NotFound:
            return None
        return seen if seen.metadata.uid == place.pod_uid else None


def _place(attempt: port.Attempt) -> port.WorkerPod:
    if attempt.place is None:
        raise ValueError(f"attempt {attempt.ref} has no worker")
    return attempt.place


def _has(seen: pod.Pod, attempt: port.Attempt) -> bool:
    name = template.container_name(attempt.ref)
    return any(container.name == name for container in seen.spec.ephemeral_containers)


def _status(seen: pod.Pod, attempt: port.Attempt) -> pod.ContainerStatus | None:
    name = template.container_name(attempt.ref)
    statuses = seen.status.ephemeral_container_statuses
    return next((status for status in reversed(statuses) if status.name == name), None)


def _judge(seen: pod.Pod, attempt: port.Attempt) -> port.Observation:
    status = _status(seen, attempt)
    ended = status is not None and status.state.terminated is not None
    return (
        observation.lost(seen.metadata.name)
        if seen.is_finished and not ended
        else observation.observe(seen, status)
    )


def _changes(old: pod.Pod | None, new: pod.Pod | None) -> list[tuple[attempts.AttemptRef, bool]]:
    """Return the attempts whose containers have changed, each with a flag whether its container has
    ended.
    """
    if new is None:
        gone = () if old is None else old.spec.ephemeral_containers
        return [(ref, True) for c in gone if (ref := template.ref_of(c.name)) is not None]
    before = old.status.ephemeral_container_statuses if old is not None else ()
    known = {status.name: status for status in before}
    found = []
    for status in new.status.ephemeral_container_statuses:
        was = known.get(status.name)
        over = status.state.terminated is not None
        if status == was or (was is None and over and old is None):
            continue
        ref = template.ref_of(status.name)
        if ref is not None:
            found.append((ref, over))
    return found
