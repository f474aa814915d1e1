"""The merge of output files, which tasks of a run wrote on several nodes, into one snapshot.

Used by `pond_state`. No I/O. Each node has pinned its part; the merged snapshot has all files, and
each node keeps its own.
"""

from collections.abc import Mapping

from kilnwork.controllers.data_pond import model
from kilnwork.data import errors
from kilnwork.data.pond import manifest

CONFLICT = "OutputConflict"
"""Reason of a pin: two nodes have written the same path."""


def merge(parts: Mapping[str, model.Pin]) -> model.Pin:
    """Return the pin of the merged snapshot, given the pin of each node's part."""
    for node, part in sorted(parts.items()):
        if part.state == model.FAILED and not _is_empty(part):
            message = _with_node(node, part.message)
            return model.Pin(state=model.FAILED, reason=part.reason, message=message)
    read = sum(part.bytes for part in parts.values())
    for node, part in sorted(parts.items()):
        if part.state == model.PENDING:
            message = _with_node(node, part.message)
            return model.Pin(bytes=read, reason=part.reason, message=message)
    return _merge_manifests({node: part.manifest for node, part in parts.items() if part.manifest})


def _with_node(node: str, message: str) -> str:
    """Prefix a message with the name of its node, unless it already has this prefix."""
    return message if message.startswith(f"node {node}") else f"node {node}: {message}"


def _is_empty(part: model.Pin) -> bool:
    """Return whether the part of a node is empty: tasks ran there but wrote no files."""
    return part.reason == errors.SourceMissing.reason


def _merge_manifests(parts: Mapping[str, manifest.Manifest]) -> model.Pin:
    where: dict[str, str] = {}
    for node, part in sorted(parts.items()):
        for file in part.files:
            if file.path in where:
                return model.Pin(
                    state=model.FAILED,
                    reason=CONFLICT,
                    message=f"tasks on nodes {where[file.path]} and {node} have both written "
                    f"{file.path!r}: have each task name its files by its shard",
                )
            where[file.path] = node
    if not where:
        return model.Pin(
            state=model.FAILED,
            reason=errors.SourceMissing.reason,
            message="none of its tasks has written a file to $KILN_OUTPUTS",
        )
    try:
        made = manifest.Manifest(file for part in parts.values() for file in part.files)
    except errors.ManifestRefused as error:
        return model.Pin(state=model.FAILED, reason=error.reason, message=str(error))
    return model.Pin(
        state=model.PINNED,
        digest=made.digest,
        manifest=made,
        bytes=made.size,
        paths_by_node={node: tuple(f.path for f in part.files) for node, part in parts.items()},
    )
