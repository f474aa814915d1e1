"""Requests for the outputs of a run: to the engine for the nodes of its tasks, and to ponds for
their files.

Used by `reconciler`. Decisions are in `outputs`. Everything may be repeated.
"""

from collections.abc import Mapping

import msgspec

from kilnwork.controllers.data_pond import model
from kilnwork.controllers.sync_set import outputs, ports
from kilnwork.jobs.flows import model as flow_model

_PAGE = 1_000
"""Number of step instances read at once."""


class OutputRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with outputs of the SyncSet with this `uid`, and its pond. `lease`: name of the
    run's lease and of its directory."""

    namespace: str
    pond: str
    lease: str
    uid: str


async def read_written(
    flows: ports.Flows, run: flow_model.NewFlowRun
) -> Mapping[str, outputs.Written]:
    """Return where the successful tasks of each output have run."""
    return {
        one.name: outputs.where_written(await _instances(flows, run.key, one.step))
        for one in run.outputs
    }


async def _instances(
    flows: ports.Flows, key: flow_model.FlowKey, step: str
) -> list[flow_model.InstanceView]:
    found: list[flow_model.InstanceView] = []
    while True:
        after = found[-1].key if found else ""
        page = await flows.steps(key, step=step, after=after, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


def request(uid: str, generation: int, output: str) -> str:
    """Return the request of an output's pins, unique to the generation."""
    return f"{uid}-g{generation}-{output}{outputs.SUFFIX}"


def ask_pins(
    ledger: ports.PondLedger,
    asked: OutputRun,
    run: flow_model.NewFlowRun,
    *,
    written: Mapping[str, outputs.Written],
) -> Mapping[str, model.Pin]:
    """Return the pin of each output, without outputs that no task wrote."""
    globs = {one.name: one.glob for one in run.outputs}
    return {
        name: ledger.want_output(
            asked.namespace,
            asked.pond,
            request=request(asked.uid, run.generation, name),
            lease=asked.lease,
            attempts=one.attempts,
            glob=globs[name],
        )
        for name, one in written.items()
        if one.attempts
    }
