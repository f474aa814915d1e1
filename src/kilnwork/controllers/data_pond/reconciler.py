"""The shell of the DataPond controller: reads the facts about one DataPond and carries out its
plan.

Used by `assembly`. Decides nothing: see `plan` and `status`.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import api_resources, data_pond, kinds, meta, node, pod, reasons
from kilnwork.controllers import reconciler_context, status_writer
from kilnwork.controllers.data_pond import (
    agent_verifier,
    deletion_decision,
    ledger,
    plan,
    pods,
    status,
    tls_certificate,
)
from kilnwork.kube import errors, events, finalizers, queue

log = logging.getLogger(__name__)

Key = tuple[str, str]

LATER_S = 5.0
"""Seconds until the next pass after an obstacle."""

Refusal = tuple[reasons.PondReason, str]


class Reconciler:
    """The reconciler of DataPonds; each pass handles one DataPond."""

    def __init__(
        self,
        context: reconciler_context.ReconcilerContext,
        work: queue.WorkQueue,
        *,
        settings: pods.PondPodSettings,
        known: ledger.Ledger,
        new_token: Callable[[], str],
    ) -> None:
        self._client = context.kube
        self._caches = context.caches
        self._emit = context.emit
        self._clock = context.time
        self._queue = work
        self._settings = settings
        self._ledger = known
        self._new_token = new_token
        self._writer = status_writer.StatusWriter(
            context.kube, kinds.DATA_PONDS, data_pond.DataPondStatus
        )
        self._refusals: dict[Key, Refusal] = {}
        self._written: dict[Key, float] = {}
        self._nodes: dict[Key, frozenset[str]] = {}
        known.subscribe(self._all_changed)

    # Event handlers: each one only queues the keys that must be reconciled.

    def pond_changed(
        self, key: Key, old: data_pond.DataPond | None, new: data_pond.DataPond | None
    ) -> None:
        """Handle the creation, change or deletion of a DataPond."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._writer.forget(old.metadata.uid)
        self._queue.add(key)

    def part_changed(self, key: Key, old: Any, new: Any) -> None:
        """Handle the creation, change or deletion of a Pod or Secret of kilnwork."""
        metadata: meta.ObjectMeta = (new or old).metadata
        pond = metadata.annotations.get(pods.POND_LABEL)
        if pond is not None:
            self._queue.add((key[0], pond))

    def node_changed(self, _: Key, old: node.Node | None, new: node.Node | None) -> None:
        """Handle the creation, change or deletion of a Node."""
        if old is None or new is None or _relevant(old) != _relevant(new):
            self._all_changed()

    def _all_changed(self) -> None:
        for one in self._caches.ponds.list():
            self._queue.add((one.metadata.namespace, one.metadata.name))

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over a DataPond; return in how many seconds to make the next one, if no
        change comes first.
        """
        found = self._caches.ponds.get(key)
        deleted = found is not None and found.metadata.deletion_timestamp is not None
        if found is None or (deleted and not deletion_decision.is_being_deleted(found)):
            self._forget(key)
            return None
        pond = msgspec.structs.replace(found, status=self._writer.current(found))
        root = pods.data_directory(pond, self._settings)
        self._ledger.pond_changed(*key, pond.spec, root=root, deleted=deleted)
        silent_s = self._ledger.note_silence(*key)
        decided = plan.decide(self._facts(key, pond), self._settings)
        for gone in self._nodes.get(key, frozenset()) - decided.nodes:
            self._ledger.node_gone(*key, gone)
        self._nodes[key] = decided.nodes
        if decided.end is not None and await self._close(key, pond, decided.end):
            return None
        if decided.hold:
            await self._hold(pond)
        refusal = await self._carry_out(pond, decided)
        again_s = decided.again_s
        if refusal != self._refusals.get(key):
            self._note(key, pond, refusal)
            decided = plan.decide(self._facts(key, pond), self._settings)
        if refusal is not None or key in self._refusals:
            again_s = LATER_S
        self._ledger.explain(*key, status.obstacle(decided.status))
        written_s = await self._update_status(key, pond, decided.status)
        later = (again_s, written_s, silent_s)
        return min((s for s in later if s is not None), default=None)

    def _facts(self, key: Key, pond: data_pond.DataPond) -> plan.Facts:
        return plan.Facts(
            pond=pond,
            others=self._caches.ponds.list(),
            nodes=self._caches.nodes.list(),
            pods=sorted(self._caches.pods.owned_by(pond.metadata.uid), key=_name),
            secret=agent_verifier.secret_of(self._caches, pond),
            refusal=self._refusals.get(key),
            known=self._ledger.state(*key),
            now=self._clock.wall(),
        )

    def _forget(self, key: Key) -> None:
        self._refusals.pop(key, None)
        self._written.pop(key, None)
        self._nodes.pop(key, None)
        self._ledger.pond_gone(*key)

    # Writing

    async def _hold(self, pond: data_pond.DataPond) -> None:
        """Set the finalizer of a DataPond, unless it has just been deleted."""
        with contextlib.suppress(errors.NotFound, errors.Invalid):
            await finalizers.add(
                self._client, kinds.DATA_PONDS, pond, finalizer=deletion_decision.FINALIZER
            )

    async def _close(
        self, key: Key, pond: data_pond.DataPond, end: deletion_decision.Deletion
    ) -> bool:
        """Continue the deletion of a DataPond; return whether the finalizer was removed."""
        if end.remove:
            self._ledger.remove(*key)
        if not end.finished:
            return False
        if end.left:
            root = pods.data_directory(pond, self._settings)
            message = f"{root} stays on nodes {', '.join(end.left)}, which were away: remove it"
            about = events.reference(kinds.DATA_PONDS, pond)
            self._emit(about, events.WARNING, str(reasons.PondReason.DATA_LEFT), message)
            log.warning("data of a deleted DataPond stays", extra={"why": message})
        await finalizers.remove(
            self._client, kinds.DATA_PONDS, pond, finalizer=deletion_decision.FINALIZER
        )
        return True

    async def _carry_out(self, pond: data_pond.DataPond, decided: plan.Plan) -> Refusal | None:
        if decided.make_secret:
            pair = tls_certificate.create(now=self._clock.wall())
            body = pods.make_secret(pond, self._settings, token=self._new_token(), pair=pair)
            return await self._make(api_resources.SECRETS, body, pond)
        data = dict(decided.mend_secret)
        if decided.new_pair:
            data |= pods.pair_data(tls_certificate.create(now=self._clock.wall()))
        if data:
            await self._mend(pond, data)
            return None
        for seen, why in decided.remove:
            facts = {"pod": seen.metadata.name, "pond": pond.metadata.name, "why": why}
            log.info("deleting agent Pod", extra=facts)
            await reconciler_context.delete(self._client, api_resources.PODS, seen.metadata)
        for body in decided.create:
            refusal = await self._make(api_resources.PODS, body, pond)
            if refusal is not None:
                return refusal  # the others would be refused, too
        return None

    async def _make(
        self, kind: api_resources.Resource, body: meta.JsonObject, pond: data_pond.DataPond
    ) -> Refusal | None:
        try:
            await self._client.create(kind, body, pond.metadata.namespace)
        except errors.AlreadyExists:
            return await self._taken(kind, body["metadata"]["name"], pond)
        except (errors.Forbidden, errors.Invalid) as error:
            return reasons.PondReason.POD_REFUSED, error.message
        return None

    async def _taken(
        self, kind: api_resources.Resource, name: str, pond: data_pond.DataPond
    ) -> Refusal | None:
        """Return why a name cannot be used for an object of the pond; None if the existing object
        is the pond's own or is being deleted.
        """
        try:
            found = await self._client.get(kind, name, pond.metadata.namespace, type=meta.Partial)
        except errors.NotFound:
            return None
        owner = found.metadata.controller()
        ours = owner is not None and owner.uid == pond.metadata.uid
        if ours or found.metadata.deletion_timestamp is not None:
            return None
        message = f"{kind.kind} {name} exists and does not belong to this DataPond"
        return reasons.PondReason.NAME_TAKEN, message

    async def _mend(self, pond: data_pond.DataPond, data: dict[str, str]) -> None:
        name, change = pods.secret_name(pond.metadata.name), {"data": data}
        try:
            await self._client.merge_patch(
                api_resources.SECRETS, name, change, pond.metadata.namespace
            )
        except errors.NotFound:
            return

    def _note(self, key: Key, pond: data_pond.DataPond, refusal: Refusal | None) -> None:
        if refusal is None:
            self._refusals.pop(key, None)
            return
        self._refusals[key] = refusal
        about = events.reference(kinds.DATA_PONDS, pond)
        self._emit(about, events.WARNING, str(refusal[0]), refusal[1])

    async def _update_status(
        self, key: Key, pond: data_pond.DataPond, wanted: data_pond.DataPondStatus
    ) -> float | None:
        now = self._clock.monotonic()
        wait_s = status.wait_s(pond.status, wanted, written=self._written.get(key), now=now)
        if wait_s is None or wait_s > 0:
            return wait_s
        try:
            await self._writer.write(pond, wanted)
        except errors.NotFound:
            return None
        self._written[key] = now
        return None


def _name(seen: pod.Pod) -> str:
    return seen.metadata.name


def _relevant(one: node.Node) -> tuple[object, ...]:
    return one.metadata.labels, one.spec
