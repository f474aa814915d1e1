"""Executor of attempts that are Kubernetes objects of any kind: it creates, adopts, watches and
ends the objects.

Used by `controllers.attempts` through `executors.port`. A `Reader` interprets the objects. Reads
from the follower's cache, and asks the API server itself if a kind cannot be watched at the moment,
and before it concludes that an object does not exist.
"""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from kilnwork.api import (
    api_resources,
    attempts,
    json_limits,
    meta,
    object_task_manifests,
    reasons,
    substitution,
)
from kilnwork.data import local_blobs
from kilnwork.executors import creation_failures, port
from kilnwork.executors.custom_resource import (
    follower,
    observation,
    served_kinds,
    status_reader,
    template,
)
from kilnwork.kit import clock
from kilnwork.kube import cache, client, errors, finalizers

IMPERSONATE = "kilnwork.dev/impersonate"
"""Annotation of a ServiceAccount; with the value `"true"`, tasks of its namespace may create
objects with the rights of the account."""

UNHEARD_S = 5.0
"""Interval in seconds at which we check an attempt whose object is not watched at the moment:
either its kind cannot be watched, or the label by which it is watched was removed."""

PODS_S = 1.0
"""Interval in seconds at which we check whether the Pods of a stopped object have finished, since
these Pods are not watched."""

ABSENT_S = 2.0
"""Interval in seconds at which an attempt requests a kind that is not served;
`served_kinds.AGAIN_S` limits the requests of all attempts together."""

_R = reasons.Reason
_INVALID = (
    object_task_manifests.InvalidManifest,
    substitution.InvalidTemplate,
    json_limits.LimitExceeded,
)


class _Place(msgspec.Struct, frozen=True):
    """The kind and name of an attempt's object, whether or not it exists."""

    kind: api_resources.Resource
    name: str


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all executors of objects share.

    `accounts`: the ServiceAccounts of the API server. `blobs`: directory of large results, by
    namespace.
    """

    kinds: served_kinds.Kinds
    objects: follower.Follower
    accounts: cache.Cache[meta.Partial]
    time: clock.Clock
    blobs: Path | None = None


class ObjectExecutor:
    """An executor whose attempts are Kubernetes objects; implements `port.Executor` and
    `port.WatchesAttempts`.
    """

    def __init__(self, kube: client.Client, reads: status_reader.Reader, shared: Shared) -> None:
        self.name = reads.name
        self._client = kube
        self._reads = reads
        self._kinds = shared.kinds
        self._objects = shared.objects
        self._accounts = shared.accounts
        self._clock = shared.time
        self._blobs_dir = shared.blobs
        self._wake: port.Wake = port.ignore_wake
        self._places: dict[attempts.AttemptRef, _Place] = {}
        self._held: dict[attempts.AttemptRef, meta.JsonObject] = {}
        """Objects that our finalizer keeps, in their last known state."""
        self._running_since: dict[attempts.AttemptRef, float] = {}
        """When an object without a start time was first seen running, wall clock."""
        self._objects.subscribe(self.name, self.changed)

    def watch(self, wake: port.Wake) -> None:
        self._wake = wake

    def changed(self, kind: api_resources.Resource, seen: meta.JsonObject, is_there: bool) -> None:  # noqa: FBT001 - as `follower.Changed`
        """Wake the attempt whose object was created, changed or removed."""
        ref = template.ref_of(seen, self.name)
        if ref is None:
            return
        if is_there and template.is_held(seen):
            self._held[ref] = seen
        else:
            self._held.pop(ref, None)
        self._wake(ref)

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> port.Attempt | None:
        seen = self._held.get(ref)
        if seen is None or not (known or template.is_terminating(seen)):
            return None
        metadata = seen["metadata"]
        manifest = {
            "apiVersion": seen["apiVersion"],
            "kind": seen["kind"],
            "metadata": {"name": template.prefix_of(seen)},
        }
        return port.Attempt(
            ref=ref,
            namespace=metadata["namespace"],
            name=template.task_name(seen),
            owner_uid=template.owner_uid(seen),
            spec=self._reads.spec_of(manifest, seen),
            began=True,
        )

    async def ensure(self, attempt: port.Attempt) -> port.Observation:
        try:
            wanted = template.wanted(attempt, self.name)
        except _INVALID as error:
            return creation_failures.refused(_R.INVALID_SPEC, str(error))
        kind = await self._kinds.find(wanted.api_version, wanted.kind)
        if isinstance(kind, served_kinds.Absent):
            return self._without_kind(attempt, wanted, kind)
        problem = "" if attempt.began else self._problem(attempt, kind, wanted)
        if problem:  # check this first: the manager may have no rights on such a kind
            return creation_failures.refused(_R.ADMISSION_ERROR, problem)
        self._places[attempt.ref] = _Place(kind, wanted.name)
        self._objects.follow(kind)
        seen = await self._find(attempt)
        if seen is None:
            if attempt.began:
                return observation.gone(f"{wanted.kind} {wanted.name}", None)
            made = await self._create(attempt, kind, wanted)
            if isinstance(made, port.Observation):
                return made
            seen = made
        return await self._judge(attempt, seen)

    async def observe(self, attempt: port.Attempt) -> port.Observation:
        seen = await self._find(attempt)
        if seen is None:
            return observation.gone(await self._what(attempt), None)
        return await self._judge(attempt, seen)

    async def stop(self, attempt: port.Attempt, how: port.Stop) -> port.Observation:
        seen = await self._read(attempt)
        if seen is None or not template.is_ours(seen, attempt, self.name):
            return observation.gone(await self._what(attempt), how)
        observed = await self._judge(attempt, seen, how)
        if observed.outcome is not None:
            return observed
        await self._end(attempt, seen, how)
        again_s = self._reads.stop_again_s(seen, how, now=self._clock.wall())
        known = [one for one in (again_s, observed.check_s) if one is not None]
        return msgspec.structs.replace(observed, check_s=min(known, default=None))

    async def result(self, attempt: port.Attempt) -> attempts.Payload | None:
        seen = await self._find(attempt)
        if seen is None:
            text = f"{await self._what(attempt)} is gone, and its result"
            raise port.ResultError(_R.RESULT_LOST, text, is_loss=True)
        value = self._reads.result(attempt.spec, seen)
        if value is msgspec.UNSET:
            return None
        made = status_reader.payload(value, as_bytes=attempt.spec.output_type == "bytes")
        if len(made.data) <= attempts.MAX_INLINE_BYTES:
            return made
        if self._blobs_dir is None:
            text = f"its result has {len(made.data)} bytes, and there is no place for blobs"
            raise port.ResultError(_R.RESULT_TOO_LARGE, text)
        store = local_blobs.Blobs(self._blobs_dir / attempt.namespace, durable=True)
        digest, size = await asyncio.to_thread(store.put, [made.data])
        return attempts.Payload(made.media_type, b"", digest, size)

    async def release(self, attempt: port.Attempt) -> None:
        """Remove the finalizer from an attempt's object; delete the object of a spawned task, since
        no Task owns it.
        """
        seen = await self._find(attempt)
        place = self._places.pop(attempt.ref, None)
        self._running_since.pop(attempt.ref, None)
        if seen is None or place is None or not template.is_ours(seen, attempt, self.name):
            return
        current = seen
        if not attempt.owner_uid and not template.is_terminating(seen):
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                left = await self._client.delete(
                    place.kind,
                    place.name,
                    attempt.namespace,
                    uid=seen["metadata"]["uid"],
                    propagation="Background",
                )
                current = left if left.get("kind") == place.kind.kind else seen
        await finalizers.remove(self._client, place.kind, current, finalizer=template.FINALIZER)

    async def _end(self, attempt: port.Attempt, seen: meta.JsonObject, how: port.Stop) -> None:
        """Ask an attempt's object to end, unless the object has changed since it was observed: it
        may have ended by itself."""
        place, metadata = self._places[attempt.ref], seen["metadata"]
        if template.is_terminating(seen):
            return
        patch = self._reads.stop(seen, how, now=self._clock.wall())
        with contextlib.suppress(errors.NotFound):
            if patch is None:
                await self._client.delete(
                    place.kind,
                    place.name,
                    attempt.namespace,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                    propagation="Foreground",
                )
            elif patch:
                given = patch.get("metadata", {})
                as_judged = {**given, "resourceVersion": metadata["resourceVersion"]}
                await self._client.merge_patch(
                    place.kind, place.name, {**patch, "metadata": as_judged}, attempt.namespace
                )

    async def _judge(
        self, attempt: port.Attempt, seen: meta.JsonObject, how: port.Stop | None = None
    ) -> port.Observation:
        if not template.is_ours(seen, attempt, self.name):
            return creation_failures.name_taken(seen["kind"], seen["metadata"]["name"], attempt)
        reading = self._timed(attempt, self._reads.read(attempt.spec, seen))
        pods: list[str] = []
        if how is not None and reading.has_ended and reading.stopping:
            pods = await self._unfinished_pods(attempt, seen)
        observed = observation.observe(seen, reading, how, pods=pods)
        if observed.outcome is not None:
            return observed
        place = self._places.get(attempt.ref)
        key = attempt.namespace, seen["metadata"]["name"]
        heard = place is not None and self._objects.get(place.kind, key) is not None
        check_s = PODS_S if pods else None if heard else UNHEARD_S
        return msgspec.structs.replace(observed, check_s=check_s)

    def _timed(
        self, attempt: port.Attempt, reading: status_reader.Reading
    ) -> status_reader.Reading:
        """Add a missing start time to a reading: when the object was first seen running."""
        if reading.started is not None:
            return reading
        if reading.state is status_reader.State.RUNNING:
            self._running_since.setdefault(attempt.ref, self._clock.wall())
        since = self._running_since.get(attempt.ref)
        return msgspec.structs.replace(reading, started=since)

    async def _unfinished_pods(self, attempt: port.Attempt, seen: meta.JsonObject) -> list[str]:
        """Return the names of those Pods of an object that have not finished, although the object
        is reported as finished.
        """
        selector = self._reads.pods_of(seen)
        if not selector:
            return []
        listed = await self._client.list(
            api_resources.PODS, attempt.namespace, type=dict, label_selector=selector
        )
        over = ("Succeeded", "Failed")
        return [
            one["metadata"]["name"]
            for one in listed.items
            if (one.get("status") or {}).get("phase") not in over
        ]

    def _without_kind(
        self, attempt: port.Attempt, wanted: template.Wanted, absent: served_kinds.Absent
    ) -> port.Observation:
        if attempt.began and not absent.elsewhere:
            return observation.gone(
                f"{wanted.kind} {wanted.name}", None
            )  # its objects were deleted with the kind
        group = wanted.api_version.rpartition("/")[0]
        if not self._kinds.allowed.may_allow(group) and group:
            return creation_failures.refused(_R.ADMISSION_ERROR, _not_allowed(f"a kind of {group}"))
        return creation_failures.waits(_R.EXECUTOR_UNAVAILABLE, absent.message, check_s=ABSENT_S)

    async def _create(
        self, attempt: port.Attempt, kind: api_resources.Resource, wanted: template.Wanted
    ) -> meta.JsonObject | port.Observation:
        account = object_task_manifests.account_of(attempt.spec)
        if account:
            known = self._accounts.get((attempt.namespace, account))
            if known is None:
                text = f"ServiceAccount {account} does not exist in namespace {attempt.namespace}"
                return creation_failures.waits(_R.WAITING_FOR_SERVICE_ACCOUNT, text)
            if known.metadata.annotations.get(IMPERSONATE) != "true":
                text = (
                    f"ServiceAccount {account} has no annotation {IMPERSONATE}: only with it may "
                    "tasks create objects in its name"
                )
                return creation_failures.refused(_R.ADMISSION_ERROR, text)
        user = f"system:serviceaccount:{attempt.namespace}:{account}" if account else ""
        try:
            return await self._client.create(
                kind, wanted.body, attempt.namespace, strict=True, acts_as=user
            )
        except errors.AlreadyExists:
            found = await self._read(attempt)
            if found is None:
                raise
            return found
        except errors.NotFound as error:
            self._kinds.forget(kind)
            return creation_failures.waits(_R.EXECUTOR_UNAVAILABLE, str(error), check_s=ABSENT_S)
        except (errors.Invalid, errors.Forbidden) as error:
            if error.status == 405:  # the CRD of the kind is being deleted
                self._kinds.forget(kind)
                return creation_failures.waits(
                    _R.EXECUTOR_UNAVAILABLE, str(error), check_s=ABSENT_S
                )
            # Admission runs before the check of the name, as for Pods: the object may exist.
            found = await self._read(attempt)
            return creation_failures.refusal(error) if found is None else found

    def _problem(
        self, attempt: port.Attempt, kind: api_resources.Resource, wanted: template.Wanted
    ) -> str:
        """Return why a task may not create the object `wanted`, or "" if it may."""
        if not self._kinds.allowed.allows(kind):
            return _not_allowed(kind.qualified)
        if not kind.namespaced:
            return f"{kind.qualified} belong to no namespace: a task makes objects in its own only"
        if wanted.namespace not in ("", attempt.namespace):
            return (
                f"metadata.namespace of its manifest is {wanted.namespace}: a task makes objects "
                f"in its own namespace only, {attempt.namespace}"
            )
        return ""

    async def _find(self, attempt: port.Attempt) -> meta.JsonObject | None:
        """Return the object of an attempt from the cache, or else from the API server, since the
        cache may be behind.
        """
        place = await self._place(attempt)
        if place is None:
            return None
        known = self._objects.get(place.kind, (attempt.namespace, place.name))
        return await self._read(attempt) if known is None else known

    async def _read(self, attempt: port.Attempt) -> meta.JsonObject | None:
        place = await self._place(attempt)
        if place is None:
            return None
        try:
            return await self._client.get(place.kind, place.name, attempt.namespace)
        except errors.NotFound:
            self._kinds.forget(place.kind)  # perhaps the kind itself is gone
            found = await self._kinds.find(place.kind.api_version, place.kind.kind)
            if isinstance(found, served_kinds.Absent):
                await self._check_hidden(attempt, found, place.name)
            return None

    async def _place(self, attempt: port.Attempt) -> _Place | None:
        """Return the kind and name that the attempt's object has or would have; None if its kind is
        not served or its manifest is invalid.
        """
        known = self._places.get(attempt.ref)
        if known is not None:
            return known
        try:
            wanted = template.wanted(attempt, self.name)
        except _INVALID:
            return None  # the object was never created
        kind = await self._kinds.find(wanted.api_version, wanted.kind)
        if isinstance(kind, served_kinds.Absent):
            await self._check_hidden(attempt, kind, wanted.name)
            return None
        self._objects.follow(kind)
        place = self._places[attempt.ref] = _Place(kind, wanted.name)
        return place

    async def _check_hidden(
        self, attempt: port.Attempt, absent: served_kinds.Absent, name: str
    ) -> None:
        """Raise Unavailable if the attempt's object exists only in another version of its kind, to
        which the rules of the task may not apply.
        """
        if absent.elsewhere is None:
            return
        with contextlib.suppress(errors.NotFound):
            await self._client.get(absent.elsewhere, name, attempt.namespace)
            raise errors.Unavailable(0, "NotServed", absent.message)

    async def _what(self, attempt: port.Attempt) -> str:
        place = await self._place(attempt)
        return "its object" if place is None else f"{place.kind.kind} {place.name}"


def _not_allowed(what: str) -> str:
    return f"tasks may not make {what}: start the manager with --allow-kind to allow that"
