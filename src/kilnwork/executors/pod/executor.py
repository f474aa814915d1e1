"""Executor of attempts that are Pods: it creates, adopts, follows and deletes the Pods.

Used by `controllers.attempts` through `executors.port`. Reads from a cache that a watch fills, and
asks the API server itself before it concludes that a Pod does not exist.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from kilnwork.api import (
    api_resources,
    attempts,
    json_limits,
    meta,
    pod,
    reasons,
    substitution,
    task,
)
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs
from kilnwork.executors import container_logs, creation_failures, port
from kilnwork.executors.pod import observation, sidecar_container, template
from kilnwork.kube import cache, client, errors, finalizers

_R = reasons.Reason


class PodExecutor:
    """An executor whose attempts are Pods.

    Implements `port.Executor`, `port.WatchesAttempts` and `port.ReadsLogs`. `pods`: cache of a
    reflector of Pods with the labels `template.MANAGED`, which calls `changed`. `beside`: options
    of the sidecar that each Pod gets. `blobs`: directory of large results, by namespace.
    `read_log`: reads the logs of Pods on a node of this machine.
    """

    name = template.EXECUTOR

    def __init__(
        self,
        kube: client.Client,
        pods: cache.Cache[pod.Pod],
        *,
        beside: sidecar_container.SidecarOptions | None = None,
        blobs: Path | None = None,
        read_log: container_logs.ReadLog | None = None,
    ) -> None:
        self._client = kube
        self._pods = pods
        self._beside = beside
        self._blobs = blobs
        self._read_log = read_log
        self._wake: port.Wake = port.ignore_wake
        self._held: dict[attempts.AttemptRef, tuple[str, str]] = {}
        """Namespace and name of the Pods that our finalizer keeps."""
        self._unproven: set[tuple[str, str]] = set()
        """Pods that are gone, although their containers were not seen to end."""

    def watch(self, wake: port.Wake) -> None:
        self._wake = wake

    def changed(self, key: tuple[str, str], old: pod.Pod | None, new: pod.Pod | None) -> None:
        """Wake the attempt whose Pod was created, changed or removed."""
        seen = new or old
        ref = None if seen is None else template.ref_of(seen)
        if seen is None or ref is None:
            return
        if new is not None and _is_held(new):
            self._held[ref] = key
        else:
            self._held.pop(ref, None)
        if new is None and _runs(seen):
            self._unproven.add(key)
        ends = new is None or new.is_finished or new.terminating
        self._wake(ref, after_s=0.0 if ends else SETTLE_S)

    def is_pod_of(
        self, ref: attempts.AttemptRef, namespace: str, name: str, *, uid: str
    ) -> bool | None:
        """Return whether the Pod with this name and uid runs an attempt and has not finished.

        None if the cache has no such Pod. The Pod's token is valid as long as its object exists.
        """
        seen = self._pods.get((namespace, name))
        if seen is None:
            return None
        return template.ref_of(seen) == ref and seen.metadata.uid == uid and not seen.is_finished

    async def ensure(self, attempt: port.Attempt) -> port.Observation:
        """Create the Pod of an attempt if the cache does not have it, without asking the API server
        first.

        Nearly always it does not exist; if it does, the API server refuses to create it again.
        """
        if attempt.began:
            return await self.observe(attempt)
        name = template.pod_name(attempt.name, attempt.ref)
        seen = self._pods.get((attempt.namespace, name))
        if seen is None:
            made = await self._create(attempt)
            if isinstance(made, port.Observation):
                return made
            seen = made
        return self._judge(attempt, seen)

    async def observe(self, attempt: port.Attempt) -> port.Observation:
        seen = await self._find(attempt)
        if seen is None:
            return observation.gone(template.pod_name(attempt.name, attempt.ref), None)
        return self._judge(attempt, seen)

    async def stop(self, attempt: port.Attempt, how: port.Stop) -> port.Observation:
        """Stop the Pod of an attempt, based on the cached Pod, or on a newly read one if that is
        outdated.

        The cache is good enough for a first try: a finished Pod stays finished, and a Pod that has
        changed since is not deleted, but read again.
        """
        known = self._pods.get((attempt.namespace, template.pod_name(attempt.name, attempt.ref)))
        if known is not None:
            with contextlib.suppress(errors.Conflict):
                return await self._stop(attempt, how, known)
        return await self._stop(attempt, how, await self._read(attempt))

    async def _stop(
        self, attempt: port.Attempt, how: port.Stop, seen: pod.Pod | None
    ) -> port.Observation:
        """Delete the Pod of an attempt, unless it has changed since it was observed: it may have
        ended by itself.

        Raises Conflict if it has changed.
        """
        if seen is None or not _is_ours(attempt, seen):
            name = template.pod_name(attempt.name, attempt.ref)
            return observation.gone(name, how, proof=not self._ran_last(attempt, name))
        observed = self._judge(attempt, seen, how)
        grace = max(int(how.grace_s), 1)  # 0 would remove the object while containers run
        longer = (seen.metadata.deletion_grace_period_seconds or 0) > grace
        if observed.outcome is None and (longer or not seen.terminating):
            try:
                await self._client.delete(
                    api_resources.PODS,
                    seen.metadata.name,
                    attempt.namespace,
                    uid=seen.metadata.uid,
                    resource_version=seen.metadata.resource_version,
                    grace_s=grace,
                )
            except errors.NotFound:
                return await self._stop(attempt, how, None)
        return observed

    async def result(self, attempt: port.Attempt) -> attempts.Payload | None:
        """Return the result from the sidecar's termination message: the value, or the digest of its
        blob.
        """
        seen = await self._find(attempt)
        if seen is None:
            text = f"Pod {template.pod_name(attempt.name, attempt.ref)} is gone, and its result"
            raise port.ResultError(_R.RESULT_LOST, text, is_loss=True)
        payload = sidecar_container.result(seen) if sidecar_container.is_wanted(attempt) else None
        if payload is None or payload.digest is None:
            return payload
        return await asyncio.to_thread(self._fetched, attempt.namespace, payload, payload.digest)

    def _fetched(
        self, namespace: str, payload: attempts.Payload, digest: bytes
    ) -> attempts.Payload:
        """Return a result that is a blob as a payload, inline if it fits into the journal.

        The garbage collector keeps the blob for at least an hour.
        """
        name = local_blobs.text(digest)
        try:
            if self._blobs is None:
                raise data_errors.BlobMissing(f"blob {name} cannot be seen here")
            store = local_blobs.Blobs(self._blobs / namespace, durable=True)
            if not store.touch(digest):
                raise data_errors.BlobMissing(f"blob {name} of the result is not there any more")
            if payload.size > attempts.MAX_INLINE_BYTES:
                return payload
            return attempts.Payload(payload.media_type, bytes(store.get(digest)))
        except data_errors.DataError as error:
            raise port.ResultError(_R.RESULT_LOST, str(error), is_loss=True) from error

    async def release(self, attempt: port.Attempt) -> None:
        """Remove the finalizer from an attempt's Pod; delete the Pod of a spawned task, since no
        Task owns it.
        """
        self._unproven.discard(_key(attempt))
        seen = await self._find(attempt)
        if seen is None or not _is_ours(attempt, seen):
            return
        metadata, held = seen.metadata, {}
        if not attempt.owner_uid and not seen.terminating:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                held = await self._client.delete(
                    api_resources.PODS,
                    metadata.name,
                    attempt.namespace,
                    uid=metadata.uid,
                    grace_s=1,
                )
        current = held if held.get("kind") == "Pod" else seen
        await finalizers.remove(
            self._client, api_resources.PODS, current, finalizer=template.FINALIZER
        )

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> port.Attempt | None:
        key = self._held.get(ref)
        seen = None if key is None else self._pods.get(key)
        if seen is None or not (known or seen.terminating):
            return None
        metadata = seen.metadata
        owner = metadata.controller()
        return port.Attempt(
            ref=ref,
            namespace=metadata.namespace,
            name=template.task_name_in(seen),
            owner_uid="" if owner is None else owner.uid,
            spec=task.TaskSpec(pod=task.PodTemplate(spec={})),
            began=True,
        )

    async def outputs(self, attempt: port.Attempt) -> list[port.AttemptOutput]:
        seen = await self._find(attempt)
        if seen is None or not _is_ours(attempt, seen):
            return []
        containers = seen.status.container_statuses
        begun = [c for c in containers if c.state.started or c.last_state.started]
        if begun:
            return [_output(c, c.name if len(containers) > 1 else "") for c in begun]
        ours = sidecar_container.CONTAINER if sidecar_container.is_wanted(attempt) else None
        before = seen.status.init_container_statuses
        return [_output(c, c.name) for c in before if c.name != ours and _has_failed(c)]

    def logs(
        self, attempt: port.Attempt, output: port.AttemptOutput, how: port.LogRange
    ) -> AsyncGenerator[bytes, None]:
        where = (attempt.namespace, template.pod_name(attempt.name, attempt.ref))
        return container_logs.read(self._client, where, output.source, how, read_log=self._read_log)

    def _ran_last(self, attempt: port.Attempt, name: str) -> bool:
        """Return whether the Pod of an attempt was running when last seen, so that its absence
        does not prove that it has ended.
        """
        known = self._pods.get(_key(attempt))
        running = known is not None and _is_ours(attempt, known) and _runs(known)
        return running or _key(attempt) in self._unproven

    def _judge(
        self, attempt: port.Attempt, seen: pod.Pod, how: port.Stop | None = None
    ) -> port.Observation:
        if not _is_ours(attempt, seen):
            return creation_failures.name_taken("Pod", seen.metadata.name, attempt)
        made_of = attempt.spec.pod
        observed = observation.observe(seen, how, spec={} if made_of is None else made_of.spec)
        if observed.outcome is None and _key(attempt) not in self._pods:
            return msgspec.structs.replace(observed, check_s=UNWATCHED_CHECK_S)
        return observed

    async def _create(self, attempt: port.Attempt) -> pod.Pod | port.Observation:
        try:
            wanted = template.pod(attempt, self._beside)
        except (substitution.InvalidTemplate, json_limits.LimitExceeded) as error:
            return creation_failures.refused(_R.INVALID_SPEC, str(error))
        try:
            made = await self._client.create(api_resources.PODS, wanted, strict=True)
        except errors.AlreadyExists:
            found = await self._read(attempt)
            if found is None:
                raise
            return found
        except (errors.Invalid, errors.Forbidden) as error:
            # Admission runs before the check of the name: a full quota also refuses a Pod that
            # exists already.
            found = await self._read(attempt)
            return creation_failures.refusal(error) if found is None else found
        return msgspec.convert(made, pod.Pod)

    async def _find(self, attempt: port.Attempt) -> pod.Pod | None:
        """Return the Pod of an attempt from the cache, or else from the API server, since the cache
        may be behind.
        """
        known = self._pods.get(_key(attempt))
        return await self._read(attempt) if known is None else known

    async def _read(self, attempt: port.Attempt) -> pod.Pod | None:
        try:
            return await self._client.get(
                api_resources.PODS,
                template.pod_name(attempt.name, attempt.ref),
                attempt.namespace,
                type=pod.Pod,
            )
        except errors.NotFound:
            return None


def _runs(seen: pod.Pod) -> bool:
    """Return whether containers of a Pod may run: it has a node, which has not reported their
    end.
    """
    return bool(seen.spec.node_name) and not seen.is_finished


def _output(container: pod.ContainerStatus, name: str) -> port.AttemptOutput:
    return port.AttemptOutput(
        name=name,
        source=container.name,
        life=container.restart_count,
        is_over=container.state.running is None,
    )


def _has_failed(container: pod.ContainerStatus) -> bool:
    """Return whether the container has ended with an error and was not restarted."""
    if container.state.running is not None:
        return False
    ended = container.state.terminated or container.last_state.terminated
    return ended is not None and ended.exit_code != 0


def _is_held(seen: pod.Pod) -> bool:
    """Return whether the finalizer of kilnwork keeps the Pod."""
    return template.FINALIZER in seen.metadata.finalizers


SETTLE_S = 0.2
"""Delay in seconds after a change of a starting Pod (created, bound, running) until the Pod is
observed, so that several changes need one observation: a short Pod has ended by then."""

UNWATCHED_CHECK_S = 5.0
"""Interval in seconds at which we check a Pod that the watch does not report, or no longer reports:
another client may have removed the label by which the Pod is watched."""


def _key(attempt: port.Attempt) -> tuple[str, str]:
    """Return the namespace and name of the attempt's Pod."""
    return attempt.namespace, template.pod_name(attempt.name, attempt.ref)


def _is_ours(attempt: port.Attempt, seen: pod.Pod) -> bool:
    """Return whether a Pod was created for this attempt, by its name and the uid of its owner.

    A client that may patch Pods can remove labels or the owner, but is unlikely to add our
    finalizer.
    """
    if template.ref_of(seen) != attempt.ref:
        return False
    owner: meta.OwnerReference | None = seen.metadata.controller()
    if owner is None:
        return _is_held(seen) or not attempt.owner_uid
    return owner.uid == attempt.owner_uid
