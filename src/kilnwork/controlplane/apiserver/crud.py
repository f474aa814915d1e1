"""Create, replace and change single objects: the way of every write into the store.

Used by the HTTP app and, without HTTP, by the garbage collector, the binder and the namespace
keeper; so all of them meet the same rules. Reading lists is in `lists`, deleting in `deletion`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane import errors, objects, store
from kilnwork.controlplane.apiserver import (
    admission,
    authn,
    builtin,
    catalog,
    causes,
    metadata,
    patching,
    statuses,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

_TRIES = 10
"""Rounds against concurrent writers before a write without resourceVersion gives up."""

_MADE_BY_UPDATE = (resource.LEASES, resource.EVENTS, resource.ROLES, resource.ROLE_BINDINGS)
"""AllowCreateOnUpdate of k8s.io/kubernetes/pkg/registry; their updates want a resourceVersion."""

_NAME_TRIES = 8
"""Names drawn for `generateName` before giving up, as the real server."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which object: how it is served, namespace (empty for cluster-wide kinds), name."""

    served: builtin.Served
    namespace: str = ""
    name: str = ""

    @property
    def kind(self) -> resource.Resource:
        """The resource."""
        return self.served.resource

    @property
    def key(self) -> objects.Key:
        """Its key in the store."""
        return objects.Key(self.kind.qualified, self.namespace, self.name)


def where(kind: resource.Resource, namespace: str | None, name: str) -> Where:
    """The place of an object; the namespace is dropped for cluster-wide kinds."""
    return Where(builtin.of(kind), (namespace or "") if kind.namespaced else "", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Who writes, and how. `dry_run`: check everything, keep nothing.

    `oddities`: of the body itself, such as fields that come twice.
    """

    user: authn.User = authn.SERVER
    dry_run: bool = False
    field_validation: str = "Warn"
    oddities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a write came to: the object as JSON, and warnings for the person who sent it."""

    raw: bytes
    warnings: tuple[str, ...] = ()
    gone: bool = False
    created: bool = False


Change = Callable[[meta.JsonObject], meta.JsonObject]
"""From a copy of the object as it is to what it should be.

With a resourceVersion in the answer, the write is refused unless that is the stored one."""


class StoredLookup:
    """`lookup.Lookup` over the store."""

    def __init__(self, held: store.Store) -> None:
        self._store = held

    def get(
        self, kind: resource.Resource, namespace: str | None, name: str
    ) -> meta.JsonObject | None:
        """The committed object, or None."""
        found = self._store.get(where(kind, namespace, name).key)
        return None if found is None else found.decode()

    def list(
        self, kind: resource.Resource, namespace: str | None = None
    ) -> Iterable[meta.JsonObject]:
        """Committed objects of a kind."""
        return (s.decode() for s in self._store.select(kind.qualified, namespace))


class Writer:
    """The way of every write. One per API server."""

    def __init__(
        self,
        held: store.Store,
        *,
        clock: clocks.Clock,
        new_uid: ids.NewUid,
        entropy: ids.Entropy,
        kinds: catalog.Catalog | None = None,
    ) -> None:
        self.store = held
        self.kinds = kinds or catalog.Catalog()
        self.clock = clock
        self.lookup = StoredLookup(held)
        self._new_uid = new_uid
        self._entropy = entropy

    async def create(self, place: Where, obj: meta.JsonObject, options: Options) -> Outcome:
        """Make a new object; draws its name if only `generateName` is given."""
        known = self._read(place, obj, options)
        given = metadata.of(known.obj)
        drawn = not given.get("name") and bool(given.get("generateName"))
        for _ in range(_NAME_TRIES if drawn else 1):
            new = self._new_object(place, known.obj)
            target = Where(place.served, place.namespace, new["metadata"]["name"])
            if self.store.head(target.key) is None:
                try:
                    return await self._create(target, new, options, warnings=known.warnings)
                except errors.Superseded:
                    continue
        await self.store.settle(target.key)
        found = self.store.get(target.key)
        going = found is not None and bool(found.metadata().deletion_timestamp)
        raise statuses.already_exists(target.kind, target.name, going=going)

    async def replace(
        self, place: Where, obj: meta.JsonObject, options: Options, *, subresource: str = ""
    ) -> Outcome:
        """Put `obj` in the place of the stored one; kinds that allow it are made by it."""
        known = self._read(place, obj, options)
        given = metadata.of(known.obj)
        if not given.get("name"):
            raise statuses.bad_request(
                f"the name of the object ({place.name} based on URL) was undeterminable: name "
                "must be provided"
            )
        _check_names(known.obj, place)
        there = self.store.head(place.key) is not None
        makes = place.kind in _MADE_BY_UPDATE and not subresource
        if makes and not there and not given.get("resourceVersion"):
            above = Where(place.served, place.namespace)
            made = await self.create(above, obj, options)
            return replace(made, created=True)
        if there and _wants_version(place.served) and not given.get("resourceVersion"):
            raise statuses.version_required(place.kind, place.name)
        options = replace(options, field_validation="Ignore", oddities=())
        done = await self.change(place, lambda _: known.obj, options, subresource=subresource)
        return replace(done, warnings=(*known.warnings, *done.warnings))

    async def change(
        self,
        place: Where,
        change: Change,
        options: Options,
        *,
        subresource: str = "",
        patched: bool = False,
    ) -> Outcome:
        """Read, change, write; again when another writer was faster and no version is demanded.

        `patched`: what the change makes was not sent as it is; refusals say so.
        """
        for _ in range(_TRIES):
            head = self.store.head(place.key)
            if head is None:
                await self.store.settle(place.key)
                raise statuses.not_found(place.kind, place.name)
            old, base = head.decode(), head.decode()
            old["apiVersion"] = base["apiVersion"] = place.kind.api_version
            wanted = self._read(place, change(base), options, patched=patched)
            self._check_preconditions(place, wanted.obj, old, patched=patched)
            new = _updated(place, wanted.obj, old, subresource=subresource)
            admitted = await self._admit(place, new, options, old=old, subresource=subresource)
            admitted.obj["apiVersion"] = old["apiVersion"] = place.served.stored_as
            _count_generation(place, admitted.obj, old)
            admitted = replace(admitted, warnings=(*wanted.warnings, *admitted.warnings))
            try:
                return await self._update(place, head, admitted, options)
            except errors.Superseded:
                continue
        await self.store.settle(place.key)
        raise statuses.conflict(place.kind, place.name)

    def now(self) -> str:
        """The time as objects carry it."""
        return clocks.rfc3339(self.clock.wall())

    def _read(
        self, place: Where, obj: meta.JsonObject, options: Options, *, patched: bool = False
    ) -> admission.Admitted:
        try:
            return admission.read(
                place.served,
                obj,
                field_validation=options.field_validation,
                oddities=options.oddities,
            )
        except statuses.StatusError as error:
            if patched and error.__cause__ is not None:
                raise statuses.unpatchable(obj, str(error.__cause__)) from error
            raise

    def _new_object(self, place: Where, obj: meta.JsonObject) -> meta.JsonObject:
        _check_names(obj, place)
        meta_ = metadata.for_create(
            metadata.of(obj),
            namespace=place.namespace,
            uid=self._new_uid(),
            now=self.now(),
            counted=_is_counted(place.served),
        )
        if not meta_.get("name"):
            base = meta_.get("generateName", "")
            if not base:
                text = "Required value: name or generateName is required"
                cause = statuses.Cause("metadata.name", "FieldValueRequired", text)
                raise statuses.invalid(place.kind, "", [cause])
            meta_["name"] = metadata.generated_name(base, self._entropy)
        return _initial(place, _assembled(place.kind, meta_, obj))

    async def _create(
        self, place: Where, new: meta.JsonObject, options: Options, *, warnings: Sequence[str]
    ) -> Outcome:
        admitted = await self._admit(place, new, options)
        admitted.obj["apiVersion"] = place.served.stored_as
        admitted = replace(admitted, warnings=(*warnings, *admitted.warnings))
        if options.dry_run:
            return Outcome(msgspec.json.encode(admitted.obj), admitted.warnings)
        stored = await self.store.put(place.key, admitted.obj, expected=0)
        return Outcome(stored.raw, admitted.warnings)

    async def _admit(
        self,
        place: Where,
        new: meta.JsonObject,
        options: Options,
        *,
        old: meta.JsonObject | None = None,
        subresource: str = "",
    ) -> admission.Admitted:
        asked = admission.Question(
            operation="create" if old is None else "update",
            kind=place.kind,
            new=new,
            old=old,
            subresource=subresource,
            known=True,
            served=place.served,
        )
        return await admission.admit(asked, user=options.user, reader=self.lookup)

    def _check_preconditions(
        self, place: Where, wanted: meta.JsonObject, old: meta.JsonObject, *, patched: bool
    ) -> None:
        """409 when the client means another object or version, 422 when it deletes by the way."""
        _check_names(wanted, place)
        given, stored = metadata.of(wanted), old["metadata"]
        uid = given.get("uid")
        if uid and uid != stored["uid"]:
            if patched:
                raise _immutable(place, "uid", causes.shown(uid))
            raise statuses.conflict(
                place.kind,
                place.name,
                f"StorageError: invalid object, Code: 4, Key: /registry/{place.kind.plural}/"
                f"{place.namespace}/{place.name}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                f"{stored['uid']}",
            )
        version = given.get("resourceVersion")
        if version and not version.isdecimal():
            raise statuses.plain_internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version and version != stored["resourceVersion"]:
            raise statuses.conflict(place.kind, place.name)
        deleted = given.get("deletionTimestamp")
        if deleted and deleted != stored.get("deletionTimestamp"):
            raise _immutable(place, "deletionTimestamp", _go_time(deleted))

    async def _update(
        self,
        place: Where,
        head: objects.Stored,
        admitted: admission.Admitted,
        options: Options,
    ) -> Outcome:
        new, warnings = admitted.obj, admitted.warnings
        new["metadata"]["resourceVersion"] = str(head.sequence)
        if patching.same(new, head.decode()):
            if self.store.head(place.key) != head:
                raise errors.Superseded
            await self.store.settle(place.key)
            return Outcome(head.raw, warnings)
        if options.dry_run:
            return Outcome(msgspec.json.encode(new), warnings)
        if place.kind != resource.NAMESPACES and _is_over(new["metadata"]):
            change = await self.store.remove(place.key, expected=head.sequence)
            return Outcome(change.raw, warnings, gone=True)
        stored = await self.store.put(place.key, new, expected=head.sequence)
        return Outcome(stored.raw, warnings)


def _immutable(place: Where, field: str, value: str) -> statuses.StatusError:
    """422 as two rules of the real server say it, each with a cause of its own."""
    text = f"Invalid value: {value}: field is immutable"
    cause = statuses.Cause(f"metadata.{field}", "FieldValueInvalid", text)
    return statuses.invalid(place.kind, place.name, [cause, cause])


def _go_time(text: str) -> str:
    """A timestamp as Go prints it."""
    return text.replace("T", " ").replace("Z", " +0000 UTC")


def _wants_version(served: builtin.Served) -> bool:
    """Kinds whose updates must name the version that they are of."""
    return served.custom or served.resource in _MADE_BY_UPDATE


def _is_over(found: dict[str, Any]) -> bool:
    """True when an object being deleted waits for nothing any more."""
    return (
        "deletionTimestamp" in found
        and not found.get("finalizers")
        and not found.get("deletionGracePeriodSeconds")
    )


def _is_counted(served: builtin.Served) -> bool:
    """Kinds with an object generation: custom ones, definitions, and Pods since 1.33."""
    counted = (resource.PODS, resource.CUSTOM_RESOURCE_DEFINITIONS)
    return served.custom or served.resource in counted


def _check_names(obj: meta.JsonObject, place: Where) -> None:
    given = metadata.of(obj)
    namespace, name = given.get("namespace") or "", given.get("name") or ""
    if namespace and place.kind.namespaced and namespace != place.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if place.name and name and name != place.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({place.name})"
        )


def _assembled(
    kind: resource.Resource, meta_: dict[str, Any], obj: meta.JsonObject
) -> meta.JsonObject:
    first = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta_}
    return first | {k: v for k, v in obj.items() if k not in first}


def _initial(place: Where, new: meta.JsonObject) -> meta.JsonObject:
    """Status belongs to its subresource, except that a Node brings its own at the beginning."""
    if place.kind == resource.NODES:
        return new
    if place.served.status_subresource:
        new.pop("status", None)
    if place.kind == resource.PODS:
        new["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if place.kind == resource.NAMESPACES:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}
    return new


def _updated(
    place: Where, wanted: meta.JsonObject, old: meta.JsonObject, *, subresource: str
) -> meta.JsonObject:
    """Main path: everything but status. `status`: only that. `binding`: all but metadata."""
    if subresource == "binding":
        return wanted | {"metadata": old["metadata"]}
    if subresource == "status":
        new = dict(old)
        new.pop("status", None)
        return new | ({"status": wanted["status"]} if wanted.get("status") is not None else {})
    meta_ = metadata.for_update(metadata.of(wanted), old["metadata"])
    if "deletionTimestamp" in old["metadata"]:
        _check_no_new_finalizers(place, meta_, old["metadata"])
    new = _assembled(place.kind, meta_, wanted)
    if place.served.status_subresource:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if place.kind == resource.NAMESPACES:
        new["spec"] = old.get("spec", {})
    return new


def _check_no_new_finalizers(place: Where, new: dict[str, Any], old: dict[str, Any]) -> None:
    added = metadata.new_finalizers(new, old)
    if added:
        listed = ", ".join(f'"{f}"' for f in added)
        text = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}"
        )
        cause = statuses.Cause("metadata.finalizers", "FieldValueForbidden", text)
        raise statuses.invalid(place.kind, place.name, [cause])


def _count_generation(place: Where, new: meta.JsonObject, old: meta.JsonObject) -> None:
    """Object generation rises with every change outside metadata and status."""
    if not _is_counted(place.served):
        return
    apart = ("metadata", "status") if place.served.status_subresource else ("metadata",)
    before = {k: v for k, v in old.items() if k not in apart}
    after = {k: v for k, v in new.items() if k not in apart}
    generation = old["metadata"].get("generation", 1)
    new["metadata"]["generation"] = generation if before == after else generation + 1
