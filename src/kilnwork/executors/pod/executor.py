"""Executor `pod`: creates, adopts, follows and deletes the Pods of attempts.

Used by `controllers.attempts` through `executors.port`. Reads from a cache that a watch fills, and
asks the API server itself before it concludes that a Pod is not there.
"""

import contextlib
from collections.abc import AsyncGenerator

import msgspec

from kilnwork.api import attempts, meta, pod, reasons, resource, task
from kilnwork.executors import port
from kilnwork.executors.pod import judge, template
from kilnwork.kube import cache, client, errors

_R = reasons.Reason


class PodExecutor:
    """`port.Executor`, `port.Watching`, `port.Logging`. `pods`: what a reflector knows of Pods with
    the labels `template.MANAGED`; `changed` is told by it."""

    name = template.EXECUTOR

    def __init__(self, kube: client.Client, pods: cache.Cache[pod.Pod]) -> None:
        self._client = kube
        self._pods = pods
        self._wake: port.Wake = lambda ref: None

    def watch(self, wake: port.Wake) -> None:
        self._wake = wake

    def changed(self, key: tuple[str, str], old: pod.Pod | None, new: pod.Pod | None) -> None:
        """A Pod came, changed or went."""
        seen = new or old
        ref = None if seen is None else template.ref_of(seen.metadata.labels)
        if ref is not None:
            self._wake(ref)

    async def ensure(self, attempt: port.Attempt) -> port.Observation:
        seen = await self._find(attempt)
        if seen is None:
            if attempt.began:
                return judge.gone(template.pod_name(attempt.name, attempt.ref), None)
            made = await self._create(attempt)
            if isinstance(made, port.Observation):
                return made
            seen = made
        return self._judge(attempt, seen)

    async def observe(self, attempt: port.Attempt) -> port.Observation:
        seen = await self._find(attempt)
        if seen is None:
            return judge.gone(template.pod_name(attempt.name, attempt.ref), None)
        return self._judge(attempt, seen)

    async def stop(self, attempt: port.Attempt, how: port.Stop) -> port.Observation:
        seen = await self._read(attempt)
        if seen is None or not _is_ours(attempt, seen):
            return judge.gone(template.pod_name(attempt.name, attempt.ref), how)
        observed = self._judge(attempt, seen, how)
        if observed.outcome is None and not seen.terminating:
            grace = max(int(how.grace_s), 1)  # 0 would remove the object while containers run
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._client.delete(
                    resource.PODS,
                    seen.metadata.name,
                    attempt.namespace,
                    uid=seen.metadata.uid,
                    grace_s=grace,
                )
        return observed

    async def result(self, attempt: port.Attempt) -> attempts.Payload | None:
        return None

    async def release(self, attempt: port.Attempt) -> None:
        """Let the Pod go; that of a spawned task, which no Task owns, is deleted."""
        name = template.pod_name(attempt.name, attempt.ref)
        seen = await self._find(attempt)
        if seen is None or not _is_ours(attempt, seen):
            return
        left = [f for f in seen.metadata.finalizers if f != template.FINALIZER]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            if not attempt.owner_uid and not seen.terminating:
                await self._client.delete(
                    resource.PODS, name, attempt.namespace, uid=seen.metadata.uid, grace_s=1
                )
            if len(left) != len(seen.metadata.finalizers):
                patch = {"metadata": {"uid": seen.metadata.uid, "finalizers": left}}
                await self._client.merge_patch(resource.PODS, name, patch, attempt.namespace)

    def leftover(self, ref: attempts.AttemptRef) -> port.Attempt | None:
        for seen in self._pods.list():
            metadata = seen.metadata
            if template.ref_of(metadata.labels) != ref or not _is_held(seen):
                continue
            owner = metadata.controller()
            return port.Attempt(
                ref=ref,
                namespace=metadata.namespace,
                name=metadata.annotations.get(template.TASK_ANNOTATION, ""),
                owner_uid="" if owner is None else owner.uid,
                spec=task.TaskSpec(pod=task.PodTemplate(spec={})),
                began=True,
            )
        return None

    async def logs(self, attempt: port.Attempt) -> AsyncGenerator[bytes, None]:
        seen = await self._find(attempt)
        if seen is None or not _is_ours(attempt, seen):
            return
        containers = seen.status.container_statuses
        for container in containers:
            if container.state.started is None and container.last_state.started is None:
                continue
            path = f"{resource.PODS.base(attempt.namespace)}/{seen.metadata.name}/log"
            query = {"container": container.name, "limitBytes": str(MAX_LOG_BYTES)}
            response = await self._client.raw("GET", path, query=query)
            if len(containers) == 1:
                yield response.body
            else:
                yield _named(container.name, response.body)

    def _judge(
        self, attempt: port.Attempt, seen: pod.Pod, how: port.Stop | None = None
    ) -> port.Observation:
        if not _is_ours(attempt, seen):
            return _refused(
                _R.NAME_TAKEN,
                f"Pod {seen.metadata.name} is not ours: delete or rename it, then retry the task",
            )
        made_of = attempt.spec.pod
        return judge.observe(seen, how, spec={} if made_of is None else made_of.spec)

    async def _create(self, attempt: port.Attempt) -> pod.Pod | port.Observation:
        try:
            made = await self._client.create(resource.PODS, template.pod(attempt))
        except errors.AlreadyExists:
            found = await self._read(attempt)
            if found is None:
                raise
            return found
        except errors.Invalid as error:
            return _refused(_R.ADMISSION_ERROR, str(error))
        except errors.Forbidden as error:
            if "exceeded quota" in str(error):
                return _waits(_R.QUOTA_EXCEEDED, str(error))
            if attempt.owner_uid and "being terminated" in str(error):
                return _refused(_R.ADMISSION_ERROR, str(error))
            raise
        return msgspec.convert(made, pod.Pod)

    async def _find(self, attempt: port.Attempt) -> pod.Pod | None:
        """From the cache; what is not there may only not have been seen yet."""
        name = template.pod_name(attempt.name, attempt.ref)
        known = self._pods.get((attempt.namespace, name))
        return await self._read(attempt) if known is None else known

    async def _read(self, attempt: port.Attempt) -> pod.Pod | None:
        try:
            return await self._client.get(
                resource.PODS,
                template.pod_name(attempt.name, attempt.ref),
                attempt.namespace,
                type=pod.Pod,
            )
        except errors.NotFound:
            return None


def _named(container: str, output: bytes) -> bytes:
    """Output of one container of several: its name before each line."""
    prefix = f"[{container}] ".encode()
    return b"".join(prefix + line for line in output.splitlines(keepends=True))


def _is_held(seen: pod.Pod) -> bool:
    """Our finalizer keeps it."""
    return template.FINALIZER in seen.metadata.finalizers


MAX_LOG_BYTES = 8 << 20
"""Of one container: what is kept of the output of an attempt."""

QUOTA_CHECK_S = 5.0
"""How often a Pod is tried again for which a ResourceQuota has no room: nothing wakes us."""


def _waits(reason: str, message: str) -> port.Observation:
    return port.Observation(
        phase=port.Phase.STAGING, reason=reason, message=message, check_s=QUOTA_CHECK_S
    )


def _refused(reason: str, message: str) -> port.Observation:
    outcome = attempts.Outcome(attempts.Ending.FAILED, reason, message, may_retry=False)
    return port.Observation(phase=port.Phase.OVER, reason=reason, message=message, outcome=outcome)


def _is_ours(attempt: port.Attempt, seen: pod.Pod) -> bool:
    """It was made for this very attempt: by its labels, and by the uid of the Task that owns it."""
    if template.ref_of(seen.metadata.labels) != attempt.ref:
        return False
    owner: meta.OwnerReference | None = seen.metadata.controller()
    return (owner.uid if owner is not None else "") == attempt.owner_uid
