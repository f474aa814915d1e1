"""The outputs of a generation: which files of its tasks are kept, and how other SyncSets read them.

No I/O. Used by `plan`, `reconciler` and `output_requests`. After the flow has succeeded, each
output becomes a snapshot: nodes pin the files that count, then hold them under a separate lease,
and only then has the generation succeeded. Therefore the files of every digest in a status exist.
"""

from collections.abc import Iterable, Mapping

import msgspec

from kilnwork.api import data_pond, reasons, sync_set, sync_set_env
from kilnwork.controllers.data_pond import model
from kilnwork.controllers.gangs import cluster_manifests
from kilnwork.controllers.sync_set import status
from kilnwork.jobs.flows import run_types as flow_model

Reason = reasons.SetReason

SUFFIX = ".out"
"""Suffix of leases for outputs; names of SyncSets contain no dots."""


class WrittenOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The places of one output: the nodes and directories to which tasks have written it.

    `attempts`: the directories that count, by node. `unknown`: a task whose node is not known any
    more, or "".
    """

    attempts: Mapping[str, tuple[str, ...]] = {}
    unknown: str = ""


def lease_name(set_name: str, generation: int) -> str:
    """Return the name of the lease for the outputs of a generation."""
    return f"{cluster_manifests.run_name(set_name, generation)}{SUFFIX}"


def kept_leases(seen: sync_set.SyncSet) -> frozenset[str]:
    """Return the leases of the generations whose outputs are kept."""
    name, shown = seen.metadata.name, seen.status
    past = {one.generation for one in shown.generations if one.outputs}
    own = {shown.generation} if shown.outputs else set()
    return frozenset(lease_name(name, generation) for generation in past | own)


def where_written(instances: Iterable[flow_model.InstanceView]) -> WrittenOutput:
    """Return the nodes and directories to which the successful tasks of a step have written."""
    found: dict[str, list[str]] = {}
    for one in instances:
        if one.state is not flow_model.InstanceState.SUCCEEDED:
            continue
        if not (one.node and one.task and one.attempt):
            return WrittenOutput(unknown=one.key)
        name = sync_set_env.output_directory(one.task, run=one.run, attempt=one.attempt)
        found.setdefault(one.node, []).append(name)
    return WrittenOutput(attempts={node: tuple(names) for node, names in sorted(found.items())})


def describe_unknown(written: Mapping[str, WrittenOutput]) -> str:
    """Return an output, and its task whose node is unknown, as a text; "" if there is no such
    task.
    """
    for name, one in written.items():
        if one.unknown:
            return f"output {name}: it is not known any more where {one.unknown} ran"
    return ""


def failure(pins: Mapping[str, model.Pin]) -> status.Explanation | None:
    """Return why an output cannot become a snapshot, or None if none has failed."""
    for name, pin in sorted(pins.items()):
        if pin.state == model.FAILED:
            return status.Explanation(Reason.OUTPUT_FAILED, f"output {name}: {pin.message}")
    return None


def describe_missing(pins: Mapping[str, model.Pin]) -> str:
    """Return what is missing until all outputs are snapshots; "" if nothing is."""
    late = [(name, pin) for name, pin in sorted(pins.items()) if pin.state != model.PINNED]
    return ", ".join(f"output {name}: {pin.message}" for name, pin in late)


def wanted_snapshots(pins: Mapping[str, model.Pin]) -> tuple[model.WantedSnapshot, ...]:
    """Return the snapshots of pinned outputs that nodes should hold: each node keeps its own
    part.
    """
    return tuple(
        model.WantedSnapshot(name=name, digest=pin.digest, paths_by_node=dict(pin.paths_by_node))
        for name, pin in sorted(pins.items())
    )


def nodes(pins: Mapping[str, model.Pin]) -> frozenset[str]:
    """Return the nodes that hold a part of an output."""
    return frozenset(node for pin in pins.values() for node in pin.paths_by_node)


def output_statuses(pins: Mapping[str, model.Pin]) -> dict[str, sync_set.OutputStatus]:
    """Return the outputs of a generation in the form of the status."""
    return {
        name: sync_set.OutputStatus(
            digest=pin.digest,
            bytes=pin.bytes,
            files=0 if pin.manifest is None else len(pin.manifest.files),
            nodes=len(pin.paths_by_node),
        )
        for name, pin in sorted(pins.items())
    }


# Taking an output


def find_output(
    of: sync_set.SyncSet | None, ref: data_pond.OutputRef, *, pond: str, reader: str
) -> str | model.Pin:
    """Return the digest of another SyncSet's output, or a pin that waits for it or has failed.

    `reader`: name of the SyncSet that reads it; its own earlier generations may have written it.
    """
    subject = f"SyncSet {ref.set}"
    if of is None:
        return model.Pin(message=f"{subject} does not exist")
    if of.spec.data.pond.name != pond:
        text = (
            f"{subject} has its data in DataPond {of.spec.data.pond.name}, and this set in {pond}"
        )
        return _failed_pin(text)
    if all(one.name != ref.name for one in of.spec.data.outputs):
        return _failed_pin(f"{subject} has no output {ref.name} in spec.data.outputs")
    digest = _digest(of.status, ref)
    if digest:
        return digest
    if ref.generation is not None and ref.generation < of.status.generation:
        return _failed_pin(f"{subject} keeps no output {ref.name} of generation {ref.generation}")
    if ref.set == reader:
        return _failed_pin(
            f"{subject} is this set itself, and no earlier generation that is kept has written "
            f"output {ref.name}: give the first generation another source"
        )
    phase = of.status.phase or "Pending"
    if sync_set.Phase(phase).final and of.status.generation == of.spec.generation:
        return _failed_pin(
            f"{subject} has no output {ref.name}: generation {of.status.generation} {phase}"
        )
    return model.Pin(message=f"{subject} has not written output {ref.name} yet: it is {phase}")


def _digest(seen: sync_set.SyncSetStatus, ref: data_pond.OutputRef) -> str:
    if ref.generation in (None, seen.generation) and ref.name in seen.outputs:
        return seen.outputs[ref.name].digest
    for past in seen.generations:  # newest first
        if ref.generation in (None, past.generation) and ref.name in past.outputs:
            return past.outputs[ref.name]
    return ""


def _failed_pin(message: str) -> model.Pin:
    return model.Pin(state=model.FAILED, reason="OutputMissing", message=message)
