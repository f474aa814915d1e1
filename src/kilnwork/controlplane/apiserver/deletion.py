"""Deletion of objects: immediate, with grace period or finalizers; single objects or collections.

Used by `resource_handler`, and by all controllers of the control plane that delete objects.
`decide` does no I/O and returns what a DELETE does to an object; `Deleter` executes it. Follows
k8s.io/apiserver/pkg/registry/rest (BeforeDelete) and the graceful deletion of Pods. Consequences
are handled elsewhere: containers by the node, dependents by `gc`, contents of a namespace by
`namespaces`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import errors, store_types
from kilnwork.controlplane.apiserver import (
    bodies,
    causes,
    definitions,
    field_types,
    object_writer,
    requests,
    statuses,
    typed_decoding,
    write_types,
)
from kilnwork.kit import clock as clocks

FOREGROUND = "foregroundDeletion"
"""Finalizer of an owner that waits for its dependents."""

ORPHAN = "orphan"
"""Finalizer of an owner whose dependents are to be kept."""

MAX_GRACE_S = 1_000_000_000
"""32 years; the end of a longer grace period would not fit into a timestamp."""

_TRIES = 10
_DEFAULT_GRACE_S = 30
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


_KIND = "DeleteOptions"
_TYPE = f"io.k8s.apimachinery.pkg.apis.meta.v1.{_KIND}"
_POLICIES = ("Foreground", "Background", "Orphan", "nil")


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a DELETE request (metav1.DeleteOptions)."""

    grace_s: int | None = None
    """None: the object's own grace period."""
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    """Foreground, Background or Orphan; empty: the object's finalizers decide, else Background."""
    options: write_types.WriteContext = msgspec.field(default_factory=write_types.WriteContext)


class DeletionDecision(msgspec.Struct, frozen=True):
    """Decision on what a DELETE does to an object.

    With `remove`, the object is removed now. With `marked` alone, that object replaces the stored
    one. With both, `marked` is only the response: a Pod that is removed at once is shown with a
    grace period of 0. With neither, nothing changes.
    """

    remove: bool = False
    marked: meta.JsonObject | None = None


async def read_options(
    request: requests.ApiRequest, options: write_types.WriteContext
) -> DeleteOptions:
    """Return the DeleteOptions in the body of a request, or else in its query.

    Raises 415 or 500 for an unreadable body, 422 for invalid options.
    """
    raw = await request.body()
    document: meta.JsonObject = {}
    if raw:
        try:
            document = bodies.decode_object(raw, request.content_type)
        except statuses.StatusError as error:
            if error.code != 400:
                raise
            raise statuses.plain_internal(bodies.without_type(error.message)) from error
    return parse_options(document, request.query, options)


def parse_options(
    document: meta.JsonObject, query: requests.Query, options: write_types.WriteContext
) -> DeleteOptions:
    """Return the DeleteOptions in a document, or else in the query.

    Raises 422, or 500 for an unreadable document.
    """
    given = _read(document)
    grace = given.get("gracePeriodSeconds")
    if grace is None:
        grace = query.number("gracePeriodSeconds")
    orphan = given.get("orphanDependents")
    if orphan is None and "orphanDependents" in query.values:
        orphan = query.flag("orphanDependents")
    propagation = given.get("propagationPolicy") or query.text("propagationPolicy")
    dry_run = given.get("dryRun") or []
    _check(propagation, dry_run, orphans=orphan is not None)
    if orphan is not None and not propagation:
        propagation = "Orphan" if orphan else "Background"
    wanted = given.get("preconditions") or {}
    return DeleteOptions(
        grace_s=None if grace is None else _valid_grace_s(grace),
        uid=wanted.get("uid") or "",
        resource_version=wanted.get("resourceVersion") or "",
        propagation=propagation,
        options=msgspec.structs.replace(options, dry_run=True) if dry_run else options,
    )


def _read(document: meta.JsonObject) -> meta.JsonObject:
    """Decode a document as metav1.DeleteOptions.

    Raises 500 for a document of another kind or with a field of the wrong type: an unreadable
    precondition must not be ignored.
    """
    kind = document.get("kind") or _KIND
    try:
        if kind != _KIND:
            raise typed_decoding.Unreadable(
                f"converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion"
            )
        return typed_decoding.read_typed(field_types.named(_TYPE), document).obj
    except typed_decoding.Unreadable as error:
        raise statuses.plain_internal(str(error)) from error


def _check(propagation: str, dry_run: list[str], *, orphans: bool) -> None:
    wrong = []
    if propagation and orphans:
        text = "orphanDependents and deletionPropagation cannot be both set"
        wrong.append(causes.invalid("propagationPolicy", propagation, text))
    elif propagation not in ("", *_POLICIES[:3]):
        wrong.append(causes.unsupported("propagationPolicy", propagation, _POLICIES))
    if any(one != "All" for one in dry_run):
        listed = ", ".join(f'"{one}"' for one in dry_run)
        text = f'Unsupported value: []string{{{listed}}}: supported values: "All"'
        wrong.append(statuses.Cause("dryRun", "FieldValueNotSupported", text))
    if wrong:
        raise statuses.invalid_options("DeleteOptions", wrong)


def decide(
    target: write_types.WriteTarget, obj: meta.JsonObject, asked: DeleteOptions, now_s: float
) -> DeletionDecision:
    """Return the decision on a DELETE of an object.

    `obj` is a copy that may be changed.
    """
    found = obj["metadata"]
    grace = _grace_s(target, obj, asked)
    deleting = "deletionTimestamp" in found
    # Only marked, as in the real registry: the objects of the kind are deleted first.
    if target.kind == api_resources.CUSTOM_RESOURCE_DEFINITIONS and not deleting:
        return DeletionDecision(marked=definitions.mark_deleted(obj, now=clocks.rfc3339(now_s)))
    finalizers = _finalizers(found, asked)
    # Its own finalizers are in spec: a namespace without any in metadata stays, too.
    held = target.kind == api_resources.NAMESPACES and (
        not deleting or bool((obj.get("spec") or {}).get("finalizers"))
    )
    # The namespace controller removes spec.finalizers when the namespace is empty.
    if held and deleting:
        return DeletionDecision()
    if not finalizers and grace == 0 and not held:
        return DeletionDecision(remove=True, marked=_without_grace(target, obj, now_s))
    before = found.get("deletionGracePeriodSeconds") or 0
    same = finalizers == list(found.get("finalizers") or ())
    # While a grace period lasts, a DELETE does not change finalizers either (BeforeDelete).
    if deleting and grace == before and (same or grace > 0):
        return DeletionDecision()
    _set_grace(found, grace, now_s)
    if finalizers:
        found["finalizers"] = finalizers
    else:
        found.pop("finalizers", None)
    # As the real server does, since controllers treat an object differently from now on.
    if found.get("generation") and not deleting:
        found["generation"] += 1
    if target.kind == api_resources.NAMESPACES:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        # The real registry of namespaces sets only the timestamp and the phase.
        del found["deletionGracePeriodSeconds"]
    return DeletionDecision(marked=obj)


def _without_grace(
    target: write_types.WriteTarget, obj: meta.JsonObject, now_s: float
) -> meta.JsonObject | None:
    """Return a Pod as the response to its immediate removal shows it.

    None for other kinds.
    """
    if target.kind != api_resources.PODS:
        return None
    found = obj["metadata"]
    if found.get("generation") and "deletionTimestamp" not in found:
        found["generation"] += 1
    _set_grace(found, 0, now_s)
    return obj


def _set_grace(found: dict[str, Any], grace: int, now_s: float) -> None:
    """Set the grace period in the metadata of an object, and the time at which it ends.

    It begins with the first DELETE.
    """
    began_s = now_s
    if "deletionTimestamp" in found:
        before = found.get("deletionGracePeriodSeconds") or 0
        began_s = clocks.parse_rfc3339(found["deletionTimestamp"]) - before
    found["deletionTimestamp"] = clocks.rfc3339(began_s + grace)
    found["deletionGracePeriodSeconds"] = grace


def _grace_s(target: write_types.WriteTarget, obj: meta.JsonObject, asked: DeleteOptions) -> int:
    """Return the grace period of an object after this DELETE, in seconds.

    It is 0 unless the object is a Pod whose containers may still run.
    """
    if target.kind != api_resources.PODS:
        return 0
    found = obj["metadata"]
    if "deletionTimestamp" in found:
        before = int(found.get("deletionGracePeriodSeconds") or 0)
        # A repeated DELETE can shorten the period if it names one, but never extend it.
        return before if asked.grace_s is None else min(asked.grace_s, before)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    # Whatever grace period is asked for: no kubelet would confirm the end (CheckGracefulDelete).
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked.grace_s is not None:
        return min(asked.grace_s, MAX_GRACE_S)
    own = spec.get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_S if own is None else min(_valid_grace_s(int(own)), MAX_GRACE_S)


def _valid_grace_s(grace: int) -> int:
    """Return a grace period in seconds; a negative one counts as 1, as in BeforeDelete."""
    return 1 if grace < 0 else grace


def _finalizers(found: dict[str, Any], asked: DeleteOptions) -> list[str]:
    kept = list(found.get("finalizers") or ())
    if not asked.propagation:
        return kept
    # The policy of this request replaces that of an earlier one.
    kept = [f for f in kept if f not in (FOREGROUND, ORPHAN)]
    added = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(asked.propagation)
    return [*kept, added] if added else kept


class Deleter:
    """Deleter of the objects of one store."""

    def __init__(self, writer: object_writer.ObjectWriter) -> None:
        self._writer = writer
        self._store = writer.store

    async def delete(
        self, target: write_types.WriteTarget, asked: DeleteOptions
    ) -> write_types.WriteResult:
        """Delete one object and return its last state, or the state that is marked for deletion."""
        self._check_allowed(target)
        for _ in range(_TRIES):
            head = self._store.head(target.key)
            # See crud: a deletion that is not committed must not become visible as a 404.
            if head is None:
                await self._store.wait_committed(target.key)
                raise statuses.not_found(target.kind, target.name)
            obj = head.decode()
            _check_preconditions(target, obj, asked)
            verdict = decide(target, obj, asked, self._writer.clock.wall())
            try:
                return await self._carry_out(target, head, verdict, asked)
            except errors.Superseded:
                continue
        raise statuses.conflict(target.kind, target.name)

    async def delete_all(
        self, targets: Iterable[write_types.WriteTarget], asked: DeleteOptions
    ) -> list[write_types.WriteResult]:
        """Delete several objects; objects that no longer exist are skipped.

        The results hold the previous state of each object, as the response of kube-apiserver does.
        """
        outcomes = []
        for target in targets:
            try:
                head = self._store.head(target.key)
                outcome = await self.delete(target, asked)
                outcomes.append(
                    outcome if head is None else msgspec.structs.replace(outcome, raw=head.raw)
                )
            except statuses.StatusError as error:
                if error.code != 404:
                    raise
        return outcomes

    async def _carry_out(
        self,
        target: write_types.WriteTarget,
        head: store_types.Stored,
        verdict: DeletionDecision,
        asked: DeleteOptions,
    ) -> write_types.WriteResult:
        if asked.options.dry_run:
            raw = head.raw if verdict.marked is None else msgspec.json.encode(verdict.marked)
            return write_types.WriteResult(raw, gone=verdict.remove)
        if verdict.remove:
            change = await self._store.remove(target.key, expected=head.sequence)
            shown = change.raw if verdict.marked is None else msgspec.json.encode(verdict.marked)
            return write_types.WriteResult(shown, gone=True)
        if verdict.marked is None:
            await self._store.wait_committed(target.key)
            return write_types.WriteResult(head.raw)
        stored = await self._store.put(target.key, verdict.marked, expected=head.sequence)
        return write_types.WriteResult(stored.raw)

    def _check_allowed(self, target: write_types.WriteTarget) -> None:
        if target.kind == api_resources.NAMESPACES and target.name in _KEPT_NAMESPACES:
            raise statuses.refused(target.kind, target.name, "this namespace may not be deleted")


def _check_preconditions(
    target: write_types.WriteTarget, obj: meta.JsonObject, asked: DeleteOptions
) -> None:
    found = obj["metadata"]
    if asked.uid and asked.uid != found["uid"]:
        raise statuses.unmet(
            target.kind,
            target.name,
            f"the UID in the precondition ({asked.uid}) does not match the UID in record "
            f"({found['uid']}). The object might have been deleted and then recreated",
        )
    if asked.resource_version and asked.resource_version != found["resourceVersion"]:
        raise statuses.unmet(
            target.kind,
            target.name,
            f"the ResourceVersion in the precondition ({asked.resource_version}) does not match "
            f"the ResourceVersion in record ({found['resourceVersion']}). The object might have "
            "been modified",
        )
