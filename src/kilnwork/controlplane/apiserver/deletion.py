"""Deleting: at once, with grace, held up by finalizers, one by one or a whole collection.

Used by the HTTP app, the garbage collector and the namespace keeper. `decide` is pure and says what
a DELETE does to an object; `Deleter` carries it out. Follows k8s.io/apiserver/pkg/registry/rest
(BeforeDelete) and the graceful deletion of Pods. The world afterwards (containers, dependents,
contents of a namespace) is the business of node, `gc` and `namespaces`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane import errors, objects
from kilnwork.controlplane.apiserver import bodies, crud, requests, statuses
from kilnwork.kit import clock as clocks

FOREGROUND = "foregroundDeletion"
"""Finalizer of an owner that waits for its dependents."""

ORPHAN = "orphan"
"""Finalizer of an owner whose dependents are to be kept."""

MAX_GRACE_S = 1_000_000_000
"""Longer grace is as good as none (32 years), and its end would not fit into a timestamp."""

_TRIES = 10
_DEFAULT_GRACE_S = 30
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.DeleteOptions as sent. Strict: a guard that cannot be read must not be passed over."""

    grace_period_seconds: int | None = None
    preconditions_: _Preconditions | None = msgspec.field(default=None, name="preconditions")
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: list[Literal["All"]] | None = None

    @property
    def preconditions(self) -> _Preconditions:
        return self.preconditions_ or _Preconditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """metav1.DeleteOptions. `grace_s` None: the object's own; `propagation` empty: Background."""

    grace_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    options: crud.Options = field(default_factory=crud.Options)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a DELETE does: `remove` now, or store `marked`, or (None) nothing more than before."""

    remove: bool = False
    marked: meta.JsonObject | None = None


async def asked(request: requests.Request, options: crud.Options) -> DeleteOptions:
    """DeleteOptions of a request's body, else of its query; 400 when they cannot be read."""
    raw = await request.body()
    document = bodies.decode_object(raw, request.content_type) if raw else {}
    return parse(document, request.query, options)


def parse(document: meta.JsonObject, query: requests.Query, options: crud.Options) -> DeleteOptions:
    """DeleteOptions of a document, else of the query; 400 when they cannot be read."""
    try:
        given = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise statuses.bad_request(f"invalid DeleteOptions: {error}") from error
    grace = given.grace_period_seconds
    if grace is None:
        grace = query.number("gracePeriodSeconds")
    orphan = given.orphan_dependents
    if orphan is None and "orphanDependents" in query.values:
        orphan = query.flag("orphanDependents")
    propagation = given.propagation_policy or query.text("propagationPolicy")
    if orphan is not None and not propagation:
        propagation = "Orphan" if orphan else "Background"
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        raise statuses.bad_request(
            f'invalid DeleteOptions: propagationPolicy: Unsupported value: "{propagation}": '
            'supported values: "Background", "Foreground", "Orphan"'
        )
    if given.dry_run:
        options = replace(options, dry_run=True)
    return DeleteOptions(
        grace_s=None if grace is None else max(0, grace),
        uid=given.preconditions.uid or "",
        resource_version=given.preconditions.resource_version or "",
        propagation=propagation,
        options=options,
    )


def decide(place: crud.Where, obj: meta.JsonObject, asked: DeleteOptions, now_s: float) -> Verdict:
    """What deleting `obj` (a copy, which may be changed) comes to."""
    found = obj["metadata"]
    grace = _grace_s(place, obj, asked)
    deleting = "deletionTimestamp" in found
    finalizers = _finalizers(found, asked)
    if not finalizers and grace == 0 and place.kind != resource.NAMESPACES:
        return Verdict(remove=True)
    before = found.get("deletionGracePeriodSeconds") or 0
    if deleting and grace >= before and finalizers == list(found.get("finalizers") or ()):
        return Verdict()
    grace = min(grace, before) if deleting else grace
    found["deletionTimestamp"] = (
        clocks.rfc3339(now_s + grace)
        if not deleting or grace < before
        else found["deletionTimestamp"]
    )
    found["deletionGracePeriodSeconds"] = grace
    if finalizers:
        found["finalizers"] = finalizers
    else:
        found.pop("finalizers", None)
    if found.get("generation") and not deleting:
        found["generation"] += 1
    if place.kind == resource.NAMESPACES:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        del found["deletionGracePeriodSeconds"]
    return Verdict(marked=obj)


def _grace_s(place: crud.Where, obj: meta.JsonObject, asked: DeleteOptions) -> int:
    """Only Pods have grace, and only where something of them may still run."""
    if place.kind != resource.PODS:
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked.grace_s is not None:
        return min(asked.grace_s, MAX_GRACE_S)
    own = spec.get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_S if own is None else min(max(0, int(own)), MAX_GRACE_S)


def _finalizers(found: dict[str, Any], asked: DeleteOptions) -> list[str]:
    kept = list(found.get("finalizers") or ())
    if not asked.propagation:
        return kept
    kept = [f for f in kept if f not in (FOREGROUND, ORPHAN)]
    added = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(asked.propagation)
    return [*kept, added] if added else kept


class Deleter:
    """Carries deletions out."""

    def __init__(self, writer: crud.Writer) -> None:
        self._writer = writer
        self._store = writer.store

    async def delete(self, place: crud.Where, asked: DeleteOptions) -> crud.Outcome:
        """Delete one object; the outcome holds its last or its marked state."""
        self._check_allowed(place)
        for _ in range(_TRIES):
            head = self._store.head(place.key)
            if head is None:
                await self._store.settle(place.key)
                raise statuses.not_found(place.kind, place.name)
            obj = head.decode()
            _check_preconditions(place, obj, asked)
            verdict = decide(place, obj, asked, self._writer.clock.wall())
            try:
                return await self._carry_out(place, head, verdict, asked)
            except errors.Superseded:
                continue
        raise statuses.conflict(place.kind, place.name)

    async def delete_all(
        self, places: Iterable[crud.Where], asked: DeleteOptions
    ) -> list[crud.Outcome]:
        """Delete each of a collection; one that has gone meanwhile is passed over."""
        outcomes = []
        for place in places:
            try:
                outcomes.append(await self.delete(place, asked))
            except statuses.StatusError as error:
                if error.code != 404:
                    raise
        return outcomes

    async def _carry_out(
        self, place: crud.Where, head: objects.Stored, verdict: Verdict, asked: DeleteOptions
    ) -> crud.Outcome:
        if asked.options.dry_run:
            raw = head.raw if verdict.marked is None else msgspec.json.encode(verdict.marked)
            return crud.Outcome(raw, gone=verdict.remove)
        if verdict.remove:
            change = await self._store.remove(place.key, expected=head.sequence)
            return crud.Outcome(change.raw, gone=True)
        if verdict.marked is None:
            await self._store.settle(place.key)
            return crud.Outcome(head.raw)
        stored = await self._store.put(place.key, verdict.marked, expected=head.sequence)
        return crud.Outcome(stored.raw)

    def _check_allowed(self, place: crud.Where) -> None:
        if place.kind == resource.NAMESPACES and place.name in _KEPT_NAMESPACES:
            raise statuses.refused(place.kind, place.name, "this namespace may not be deleted")


def _check_preconditions(place: crud.Where, obj: meta.JsonObject, asked: DeleteOptions) -> None:
    found = obj["metadata"]
    if asked.uid and asked.uid != found["uid"]:
        raise statuses.conflict(
            place.kind,
            place.name,
            f"the UID in the precondition ({asked.uid}) does not match the UID in record "
            f"({found['uid']}). The object might have been deleted and then recreated",
        )
    if asked.resource_version and asked.resource_version != found["resourceVersion"]:
        raise statuses.conflict(
            place.kind,
            place.name,
            f"the ResourceVersion in the precondition ({asked.resource_version}) does not match "
            f"the ResourceVersion in record ({found['resourceVersion']}). The object might have "
            "been modified",
        )
