"""The state of the pins of a generation's snapshots, until all digests are known.

No I/O. Used by `plan` and `reconciler`. A digest in the status does not change; a replay uses the
digests of the generation that it repeats.
"""

from collections.abc import Mapping

import msgspec

from kilnwork.api import reasons, sync_set
from kilnwork.controllers import errors
from kilnwork.controllers.data_pond import model
from kilnwork.controllers.sync_set import flow_pond_interfaces, requirements, status
from kilnwork.data import errors as data_errors
from kilnwork.jobs.flows import run_types as flow_model

Reason = reasons.SetReason

_REASONS = {
    "SourceChanged": Reason.SOURCE_CHANGED,
    "DataCorrupt": Reason.DATA_CORRUPT,
}


class CannotPin(errors.ControllerError):
    """A snapshot cannot be pinned, and waiting does not help. `reason`: why, as one word."""

    def __init__(self, reason: reasons.SetReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The state of all pins of a generation."""

    program: requirements.Program | None
    """The program with its pinned data; None while a snapshot is missing."""
    snapshots: Mapping[str, sync_set.SnapshotStatus]
    """The known snapshots in the form of the status."""
    why: status.Explanation

    def is_new(self, shown: sync_set.SyncSetStatus) -> bool:
        """Return whether the status must be written: it lacks a digest, or the statement that all
        digests are known.
        """
        known = {name: one.digest for name, one in shown.snapshots.items()}
        if any(known.get(name) != one.digest for name, one in self.snapshots.items()):
            return True
        return self.program is not None and not status.is_pinned(shown)


def reason_of(word: str, otherwise: reasons.SetReason) -> reasons.SetReason:
    """Return the reason for a SyncSet that corresponds to the reason of a pond."""
    return _REASONS.get(word, otherwise)


def wanted_digest(
    seen: sync_set.SyncSet, name: str, stored: flow_model.NewFlowRun | None
) -> str | None:
    """Return the digest that a snapshot must have, or None if its source determines it."""
    written = seen.status.snapshots.get(name)
    if written is not None and written.digest:
        return written.digest
    if stored is not None and name in stored.snapshots:
        return stored.snapshots[name].digest
    given = {one.name: one.digest for one in seen.spec.data.snapshots}
    return given.get(name)


def resolve_pins(
    seen: sync_set.SyncSet,
    pins: Mapping[str, model.Pin],
    *,
    stored: flow_model.NewFlowRun | None,
    pond: flow_pond_interfaces.Pond | None,
    planned: requirements.ShardCache,
) -> Pinned:
    """Return the state of all pins of a generation. Raises CannotPin."""
    if seen.status.replay_of is not None:
        return _of_replay(seen, stored)
    snapshots = seen.spec.data.snapshots
    if not snapshots:
        program = requirements.Program(
            flow=seen.spec.flow, snapshots={}, outputs=seen.spec.data.outputs
        )
        return Pinned(program=program, snapshots={}, why=status.Explanation(Reason.NO_DATA, ""))
    name = seen.spec.data.pond.name
    if pond is None:
        text = f"DataPond {name} does not exist in namespace {seen.metadata.namespace}"
        return _not_yet(seen, status.Explanation(Reason.WAITING_FOR_POND, text))
    if not pond.nodes:
        return _not_yet(seen, explain_no_agent(seen))
    return _of_pins(seen, pins, planned)


def explain_no_agent(seen: sync_set.SyncSet) -> status.Explanation:
    """Return the reason and message to show while no node can hold the data."""
    name = seen.spec.data.pond.name
    text = f"no agent of DataPond {name} is connected: its condition Ready says why"
    return status.Explanation(Reason.WAITING_FOR_POND, text)


def _of_pins(
    seen: sync_set.SyncSet, pins: Mapping[str, model.Pin], planned: requirements.ShardCache
) -> Pinned:
    refs: dict[str, flow_model.SnapshotRef] = {}
    missing = []
    for snapshot in seen.spec.data.snapshots:
        pin = pins.get(snapshot.name, model.Pin())
        if pin.state == model.FAILED:
            reason = reason_of(pin.reason, Reason.PIN_FAILED)
            raise CannotPin(reason, f"snapshot {snapshot.name}: {pin.message}")
        found = _ref(seen, snapshot, pin, planned=planned) if pin.state == model.PINNED else None
        if found is None:
            missing.append(
                f"snapshot {snapshot.name}" + (f": {pin.message}" if pin.message else "")
            )
        else:
            refs[snapshot.name] = found
    known = {**seen.status.snapshots, **{name: _shown(ref) for name, ref in refs.items()}}
    if missing:
        why = status.Explanation(Reason.PINNING, ", ".join(missing))
        return Pinned(program=None, snapshots=known, why=why)
    program = requirements.Program(
        flow=seen.spec.flow, snapshots=refs, outputs=seen.spec.data.outputs
    )
    return Pinned(program=program, snapshots=known, why=status.Explanation(Reason.PINNED, ""))


def _ref(
    seen: sync_set.SyncSet,
    snapshot: sync_set.Snapshot,
    pin: model.Pin,
    *,
    planned: requirements.ShardCache,
) -> flow_model.SnapshotRef | None:
    digest = wanted_digest(seen, snapshot.name, None)
    if digest is not None and digest != pin.digest:
        text = f"snapshot {snapshot.name}: its source gives {pin.digest}, wanted is {digest}"
        raise CannotPin(Reason.SOURCE_CHANGED, text)
    try:
        return requirements.snapshot_ref(seen, snapshot, pin, planned=planned)
    except data_errors.PondError as error:
        raise CannotPin(Reason.INVALID_SPEC, f"snapshot {snapshot.name}: {error}") from error


def _of_replay(seen: sync_set.SyncSet, stored: flow_model.NewFlowRun | None) -> Pinned:
    if stored is None:
        text = (
            f"generation {seen.status.replay_of} is not kept: spec.keep.generations is "
            f"{seen.spec.keep.generations}, and status.generations has those that are"
        )
        raise CannotPin(Reason.NO_GENERATION, text)
    return Pinned(
        program=requirements.Program(
            flow=stored.flow, snapshots=stored.snapshots, outputs=stored.outputs
        ),
        snapshots={name: _shown(ref) for name, ref in stored.snapshots.items()},
        why=status.Explanation(Reason.PINNED, f"as in generation {stored.generation}"),
    )


def _not_yet(seen: sync_set.SyncSet, why: status.Explanation) -> Pinned:
    return Pinned(program=None, snapshots=seen.status.snapshots, why=why)


def _shown(ref: flow_model.SnapshotRef) -> sync_set.SnapshotStatus:
    count = 0 if ref.shards is None else len(ref.shards)
    return sync_set.SnapshotStatus(digest=ref.digest, bytes=ref.bytes, shards=count)
