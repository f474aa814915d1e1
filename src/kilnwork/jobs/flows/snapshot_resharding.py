"""Resharding: replaces the shards of a run's snapshots while the run is unfinished. No I/O.

Used by `flow_service`. The shards of a snapshot stay unchanged once a step that names the snapshot
has begun: steps may pair the results of one step with the shards of another, and a step that
resumes after a crash must find the same shards.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.jobs.flows import live_run_state, run_types, views


def named_snapshots(run: live_run_state.Run) -> frozenset[str]:
    """Return the names of the snapshots that are used by steps that have begun, or by their
    `else`.
    """
    nodes = views.nodes_by_path(run.program)
    chosen = (one for path in run.newest for one in nodes[path].with_alternative)
    names = (name for one in chosen for _, some in one.expressions for name in some)
    return frozenset(name.member for name in names if name.root == "data" and name.member)


def with_shards(run: live_run_state.Run, shards: Mapping[str, list[Any]]) -> run_types.NewFlowRun:
    """Return the definition of a run with new shards.

    Only snapshots that have shards already, and that no step has named yet, are changed.
    """
    fixed = named_snapshots(run)
    changed = {
        name: msgspec.structs.replace(ref, shards=shards[name])
        for name, ref in run.new.snapshots.items()
        if name in shards and name not in fixed and ref.shards not in (None, shards[name])
    }
    if not changed:
        return run.new
    return msgspec.structs.replace(run.new, snapshots={**run.new.snapshots, **changed})
