"""Which snapshots of a run may be divided again while it runs. Pure.

Used by `runs`. A snapshot of which a step has begun to read the shards, or anything else, stays as
it is: steps may pair the results of one with the shards of another, and a step that goes on after a
crash must find its own.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.jobs.flows import model, records, views


def named_snapshots(run: records.Run) -> frozenset[str]:
    """Return the snapshots that a step names which has begun, or an `else` of one."""
    nodes = views.nodes(run.program)
    chosen = (one for path in run.newest for one in nodes[path].with_alternative)
    names = (name for one in chosen for _, some in one.expressions for name in some)
    return frozenset(name.member for name in names if name.root == "data" and name.member)


def divided(run: records.Run, shards: Mapping[str, list[Any]]) -> model.NewFlowRun:
    """Return the definition of a run with other shards, of snapshots that have some and that no
    step has named yet."""
    fixed = named_snapshots(run)
    changed = {
        name: msgspec.structs.replace(ref, shards=shards[name])
        for name, ref in run.new.snapshots.items()
        if name in shards and name not in fixed and ref.shards not in (None, shards[name])
    }
    if not changed:
        return run.new
    return msgspec.structs.replace(run.new, snapshots={**run.new.snapshots, **changed})
