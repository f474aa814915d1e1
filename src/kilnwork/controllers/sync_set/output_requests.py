"""Requests about the outputs of a run: the engine is asked for the nodes of its tasks, ponds for
their files.

Used by `reconciler`. Decisions are in `output_snapshots`. Everything may be repeated.
"""

from collections.abc import Mapping

import msgspec

from kilnwork.controllers.data_pond import model
from kilnwork.controllers.sync_set import flow_pond_interfaces, output_snapshots
from kilnwork.jobs.flows import run_types as flow_model

_PAGE = 1_000
"""Number of step instances read at once."""


class OutputRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with outputs, of the SyncSet with this `uid`, and the pond that it uses. `lease`: name
    of the run's lease and of its directory.
    """

    namespace: str
    pond: str
    lease: str
    uid: str


async def read_written(
    flows: flow_pond_interfaces.Flows, run: flow_model.NewFlowRun
) -> Mapping[str, output_snapshots.WrittenOutput]:
    """Return for each output of a run where the successful tasks have written it."""
    return {
        one.name: output_snapshots.where_written(await _instances(flows, run.key, one.step))
        for one in run.outputs
    }


async def _instances(
    flows: flow_pond_interfaces.Flows, key: flow_model.FlowKey, step: str
) -> list[flow_model.InstanceView]:
    found: list[flow_model.InstanceView] = []
    while True:
        after = found[-1].key if found else ""
        page = await flows.steps(key, step=step, after=after, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


def pin_request(uid: str, generation: int, output: str) -> str:
    """Return the request name of the pins of an output, unique to the generation."""
    return f"{uid}-g{generation}-{output}{output_snapshots.SUFFIX}"


def request_pins(
    ledger: flow_pond_interfaces.PondLedger,
    asked: OutputRun,
    run: flow_model.NewFlowRun,
    *,
    written: Mapping[str, output_snapshots.WrittenOutput],
) -> Mapping[str, model.Pin]:
    """Request the pin of each output of a run and return its progress, without outputs that no task
    wrote.
    """
    globs = {one.name: one.glob for one in run.outputs}
    return {
        name: ledger.want_output(
            asked.namespace,
            asked.pond,
            request=pin_request(asked.uid, run.generation, name),
            lease=asked.lease,
            attempts=one.attempts,
            glob=globs[name],
        )
        for name, one in written.items()
        if one.attempts
    }
