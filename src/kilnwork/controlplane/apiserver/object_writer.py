"""Writes of single objects: create, replace, change and apply.

Every write of an object goes through here, except deletions. Used by `resource_handler` and,
without HTTP, by the controllers of the control plane, so that the same rules hold for all. Lists
are read in `lists`; `deletion` deletes.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane import errors, store, store_types
from kilnwork.controlplane.apiserver import (
    admission,
    catalog,
    child_object_check,
    field_types,
    managed_fields,
    metadata,
    patches,
    statuses,
    structured_merge,
    write_checks,
    write_types,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

_TRIES = 10
"""Attempts of a write without resourceVersion against concurrent writers."""

_NAME_TRIES = 8
"""Names generated for `generateName` before the request fails, as in kube-apiserver."""


class ObjectWriter:
    """Writer of objects into one store. One per API server."""

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
        self.lookup = write_types.StoredLookup(held)
        self._new_uid = new_uid
        self._entropy = entropy
        self._now = (-1, "")

    async def create(
        self,
        target: write_types.WriteTarget,
        obj: meta.JsonObject,
        options: write_types.WriteContext,
        *,
        applied: bool = False,
    ) -> write_types.WriteResult:
        """Create an object; generates its name if only `generateName` is given.

        `applied`: `obj` already contains its managedFields.
        """
        known = self._read(target, obj, options)
        with statuses.AddWarnings(known.warnings):
            return await self._make(target, known, options, applied=applied)

    async def _make(
        self,
        target: write_types.WriteTarget,
        known: admission.AdmissionResult,
        options: write_types.WriteContext,
        *,
        applied: bool,
    ) -> write_types.WriteResult:
        given = metadata.metadata_of(known.obj)
        drawn = not given.get("name") and bool(given.get("generateName"))
        # If a generated name is taken, another one is drawn (KEP-4420).
        for _ in range(_NAME_TRIES if drawn else 1):
            new = self._new_object(target, known.obj)
            object_target = write_types.WriteTarget(
                target.served, target.namespace, new["metadata"]["name"]
            )
            try:
                return await self._create(object_target, new, options, known, applied=applied)
            except errors.Superseded:
                continue
        # No client may learn of the other object before it is committed.
        await self.store.wait_committed(object_target.key)
        found = self.store.get(object_target.key)
        going = found is not None and bool(found.metadata().deletion_timestamp)
        raise statuses.already_exists(object_target.kind, object_target.name, going=going)

    async def replace(
        self,
        target: write_types.WriteTarget,
        obj: meta.JsonObject,
        options: write_types.WriteContext,
        *,
        subresource: str = "",
    ) -> write_types.WriteResult:
        """Replace a stored object by `obj`.

        Objects of the kinds in `write_checks.MADE_BY_UPDATE` are created if they do not exist.
        """
        known = self._read(target, obj, options)
        given = metadata.metadata_of(known.obj)
        if not given.get("name"):
            raise write_checks.name_missing(target)
        write_checks.check_names(known.obj, target)
        with statuses.AddWarnings(known.warnings):
            return await self._replace(target, obj, known, options, subresource=subresource)

    async def _replace(
        self,
        target: write_types.WriteTarget,
        obj: meta.JsonObject,
        known: admission.AdmissionResult,
        options: write_types.WriteContext,
        *,
        subresource: str,
    ) -> write_types.WriteResult:
        given = metadata.metadata_of(known.obj)
        exists = self.store.head(target.key) is not None
        creates = target.kind in write_checks.MADE_BY_UPDATE and not subresource
        if creates:
            write_checks.check_readable(given)
        if creates and not exists:
            collection = write_types.WriteTarget(target.served, target.namespace)
            # create refuses a resourceVersion, but a PUT that creates may have one.
            without_version = {
                **obj,
                "metadata": {**metadata.metadata_of(obj), "resourceVersion": ""},
            }
            made = await self.create(collection, without_version, options)
            return msgspec.structs.replace(made, created=True)
        if (
            exists
            and write_checks.wants_version(target.served)
            and not given.get("resourceVersion")
        ):
            raise statuses.version_required(target.kind, target.name)
        done = await self.change_internally(
            target, lambda _: known.obj, options, subresource=subresource
        )
        return msgspec.structs.replace(done, warnings=(*known.warnings, *done.warnings))

    async def change(
        self,
        target: write_types.WriteTarget,
        change: write_types.Change,
        options: write_types.WriteContext,
        *,
        subresource: str = "",
        patched: bool = False,
        applied: bool = False,
    ) -> write_types.WriteResult:
        """Read an object, call `change` with it and write the result.

        Repeats this when another writer was faster, unless the result has a resourceVersion.
        `patched`: the result was computed from a patch, which error messages then say. `applied`:
        the result already contains its managedFields.
        """

        def read(old: meta.JsonObject) -> admission.AdmissionResult:
            # A subresource changes only part of its object: the rest needs no decoding.
            known = old if subresource else None
            return self._read(target, change(old), options, known=known, patched=patched)

        return await self._change(
            target, read, options, subresource=subresource, patched=patched, applied=applied
        )

    async def change_internally(
        self,
        target: write_types.WriteTarget,
        change: write_types.Change,
        options: write_types.WriteContext,
        *,
        subresource: str = "",
    ) -> write_types.WriteResult:
        """Change an object like `change`, but do not decode the result.

        For changes by the server itself, and for objects that are decoded already.
        """

        def known(old: meta.JsonObject) -> admission.AdmissionResult:
            return admission.AdmissionResult(change(old))

        return await self._change(target, known, options, subresource=subresource)

    async def _change(
        self,
        target: write_types.WriteTarget,
        read: Callable[[meta.JsonObject], admission.AdmissionResult],
        options: write_types.WriteContext,
        *,
        subresource: str = "",
        patched: bool = False,
        applied: bool = False,
    ) -> write_types.WriteResult:
        """Change an object like `change`; `read` returns the wanted object, decoded."""
        for _ in range(_TRIES):
            head = self.store.head(target.key)
            if head is None:
                # The deletion may not be committed: a GET after a 404 must not find the object.
                await self.store.wait_committed(target.key)
                raise statuses.not_found(target.kind, target.name)
            old = head.decode()
            # The change sees the version of the request; the stored one is set again below.
            old["apiVersion"] = target.kind.api_version
            wanted = read(old)
            with statuses.AddWarnings(wanted.warnings):
                write_checks.check_preconditions(target, wanted.obj, old, patched=patched)
                new = write_checks.prepare_update(target, wanted.obj, old, subresource=subresource)
                admitted = await self._admit(target, new, options, old=old, subresource=subresource)
            # In both, so that the version alone is no change.
            admitted.obj["apiVersion"] = old["apiVersion"] = target.served.stored_as
            write_checks.count_generation(target, admitted.obj, old)
            self._set_managed_fields(
                target,
                admitted.obj,
                old,
                given=metadata.metadata_of(wanted.obj).get("managedFields"),
                manager=None if applied else write_checks.manager(target, options, subresource),
            )
            admitted = msgspec.structs.replace(
                admitted, warnings=(*wanted.warnings, *admitted.warnings)
            )
            try:
                return await self._update(target, head, old, admitted, options)
            except errors.Superseded:
                continue
        await self.store.wait_committed(target.key)
        raise statuses.conflict(target.kind, target.name)

    async def apply(
        self,
        target: write_types.WriteTarget,
        config: meta.JsonObject,
        options: write_types.WriteContext,
        *,
        force: bool = False,
        subresource: str = "",
    ) -> write_types.WriteResult:
        """Create an object from `config`, or merge `config` into it (server-side apply)."""
        write_checks.check_applied(target, config)
        manager = write_checks.manager(target, options, subresource, operation=managed_fields.APPLY)
        wanted = write_checks.owned_part(target, config, subresource)
        type_ = field_types.type_of(target.served)

        def applied(old: meta.JsonObject) -> meta.JsonObject:
            base = {**old, "metadata": dict(old["metadata"])}
            try:
                structured_merge.check(type_, config)
                version, custom = target.kind.api_version, target.served.custom
                managed_fields.adopt(type_, base, version, now=self.now(), custom=custom)
                return managed_fields.apply(
                    type_, base, wanted, manager, force=force, now=self.now()
                )
            except structured_merge.NotOfType as error:
                raise write_checks.no_patch_object(target, config, error) from error

        if self.store.head(target.key) is None and not subresource:
            if not metadata.metadata_of(config).get("name"):
                raise write_checks.name_missing(target)
            uid = metadata.metadata_of(config).get("uid")
            if uid:
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing "
                raise statuses.conflict(target.kind, target.name, why + "object was found")
            new = applied({**write_checks.type_of(target), "metadata": {}})
            collection = write_types.WriteTarget(target.served, target.namespace)
            try:
                made = await self.create(collection, new, options, applied=True)
                return msgspec.structs.replace(made, created=True)
            except statuses.StatusError as error:
                # Another client has created it meanwhile: merge into that object.
                if error.reason != "AlreadyExists":
                    raise
        return await self.change(
            target, applied, options, subresource=subresource, patched=True, applied=True
        )

    def _set_managed_fields(
        self,
        target: write_types.WriteTarget,
        new: meta.JsonObject,
        old: meta.JsonObject | None,
        *,
        given: Any,
        manager: managed_fields.FieldManager | None,
        sent: frozenset[str] = frozenset(),
    ) -> None:
        """Record in `new` which manager owns which fields.

        Without a `manager`, `given` is stored as managedFields. For `sent` see
        `write_checks.sent_names`.
        """
        type_ = field_types.type_of(target.served)
        if manager is None:
            new["metadata"].pop("managedFields", None)
            if given:
                new["metadata"]["managedFields"] = given
        elif old is None:
            managed_fields.created(
                type_,
                new,
                manager,
                now=self.now(),
                custom=target.served.custom,
                filled_in=write_checks.filled_in(target.kind, sent, new),
            )
        else:
            managed_fields.updated(type_, old, new, manager, given=given, now=self.now())
        # Else an update that changes nothing would be a change of the time of an entry.
        if old is not None and managed_fields.same_but_times(old, new):
            entries = old["metadata"].get("managedFields")
            if entries:
                new["metadata"]["managedFields"] = entries

    def now(self) -> str:
        """Return the current time in RFC 3339, with whole seconds."""
        second = int(self.clock.wall())
        if second != self._now[0]:
            self._now = (second, clocks.rfc3339(second))
        return self._now[1]

    def _read(
        self,
        target: write_types.WriteTarget,
        obj: meta.JsonObject,
        options: write_types.WriteContext,
        *,
        known: meta.JsonObject | None = None,
        patched: bool = False,
    ) -> admission.AdmissionResult:
        try:
            return admission.read(
                target.served,
                obj,
                known=known,
                field_validation=options.field_validation,
                oddities=options.oddities,
            )
        except statuses.StatusError as error:
            if patched and error.__cause__ is not None:
                raise statuses.unpatchable(obj, str(error.__cause__)) from error
            raise

    def _new_object(self, target: write_types.WriteTarget, obj: meta.JsonObject) -> meta.JsonObject:
        write_checks.check_names(obj, target)
        meta_ = metadata.for_create(
            metadata.metadata_of(obj),
            namespace=target.namespace,
            uid=self._new_uid(),
            now=self.now(),
            counted=write_checks.is_counted(target.served),
        )
        if not meta_.get("name"):
            base = meta_.get("generateName", "")
            if not base:
                text = "Required value: name or generateName is required"
                cause = statuses.Cause("metadata.name", "FieldValueRequired", text)
                raise statuses.invalid(target.kind, "", [cause])
            meta_["name"] = metadata.generated_name(base, self._entropy)
        return write_checks.prepare_new(target, write_checks.assemble(target.kind, meta_, obj))

    async def _create(
        self,
        target: write_types.WriteTarget,
        new: meta.JsonObject,
        options: write_types.WriteContext,
        known: admission.AdmissionResult,
        *,
        applied: bool,
    ) -> write_types.WriteResult:
        # Before admission, which fills in fields in place.
        sent = write_checks.sent_names(target.kind, known.obj)
        admitted = await self._admit(target, new, options)
        if target.served.extension is not None:
            await child_object_check.check(
                self.kinds, target, admitted.obj, user=options.user, reader=self.lookup
            )
        # Checked after the last await before `put`, so that no other writer comes in between.
        if self.store.head(target.key) is not None:
            raise errors.Superseded
        admitted.obj["apiVersion"] = target.served.stored_as
        self._set_managed_fields(
            target,
            admitted.obj,
            None,
            given=metadata.metadata_of(known.obj).get("managedFields"),
            manager=None if applied else write_checks.manager(target, options),
            sent=sent,
        )
        admitted = msgspec.structs.replace(admitted, warnings=(*known.warnings, *admitted.warnings))
        if options.dry_run:
            return write_types.WriteResult(msgspec.json.encode(admitted.obj), admitted.warnings)
        stored = await self.store.put(target.key, admitted.obj, expected=0)
        return write_types.WriteResult(stored.raw, admitted.warnings)

    async def _admit(
        self,
        target: write_types.WriteTarget,
        new: meta.JsonObject,
        options: write_types.WriteContext,
        *,
        old: meta.JsonObject | None = None,
        subresource: str = "",
    ) -> admission.AdmissionResult:
        asked = admission.AdmissionRequest(
            operation="create" if old is None else "update",
            kind=target.kind,
            new=new,
            old=old,
            subresource=subresource,
            known=True,
            served=target.served,
            extended=self.kinds.extension(str(metadata.metadata_of(new).get("name"))) is not None,
            pod_warnings=self.kinds.pod_warnings,
        )
        return await admission.admit(asked, user=options.user, reader=self.lookup)

    async def _update(
        self,
        target: write_types.WriteTarget,
        head: store_types.Stored,
        old: meta.JsonObject,
        admitted: admission.AdmissionResult,
        options: write_types.WriteContext,
    ) -> write_types.WriteResult:
        new, warnings = admitted.obj, admitted.warnings
        # An update that changes nothing keeps the resourceVersion and is not written.
        new["metadata"]["resourceVersion"] = str(head.sequence)
        if new == old and patches.same(new, head.decode()):
            # Admission may have awaited, and the object have changed meanwhile.
            if self.store.head(target.key) != head:
                raise errors.Superseded
            await self.store.wait_committed(target.key)
            return write_types.WriteResult(head.raw, warnings)
        if options.dry_run:
            return write_types.WriteResult(msgspec.json.encode(new), warnings)
        # As ShouldDeleteDuringUpdate of the real registry: the last finalizer is gone.
        if write_checks.is_removable(target.kind, new):
            await self.store.remove(target.key, expected=head.sequence)
            return write_types.WriteResult(msgspec.json.encode(new), warnings, gone=True)
        stored = await self.store.put(target.key, new, expected=head.sequence)
        return write_types.WriteResult(stored.raw, warnings)
