"""The nodes of output tasks, read page by page, and the pins that follow."""

from typing import Any, cast

import msgspec

from kilnwork.api import data_pond, flow, pond_messages, sync_set
from kilnwork.controllers.data_pond import ledger
from kilnwork.controllers.sync_set import flow_pond_interfaces, output_requests, output_snapshots
from kilnwork.jobs.flows import run_types
from kilnwork.kit import clock

FLOW = {"do": [{"price": {"call": "m:f"}}]}


def a_run() -> run_types.NewFlowRun:
    return run_types.NewFlowRun(
        uid="u",
        namespace="quant",
        set_name="risk",
        generation=3,
        flow=msgspec.convert(FLOW, flow.Flow),
        outputs=(sync_set.Output(name="prices", step="price", glob="*.csv"),),
    )


class PagedFlows:
    """The instances of one step, in memory, returned in pages."""

    def __init__(self, count: int) -> None:
        self.pages = 0
        self._found = [
            run_types.InstanceView(
                key=f"price[{n:05}]",
                step="price",
                state=run_types.InstanceState.SUCCEEDED,
                task=f"t{n}",
                attempt=1,
                node=f"n{n % 2}",
            )
            for n in range(count)
        ]

    async def steps(
        self, key: run_types.FlowKey, *, step: str, after: str, limit: int
    ) -> list[run_types.InstanceView]:
        self.pages += 1
        return [one for one in self._found if one.key > after and one.step == step][:limit]


async def test_all_pages_are_read() -> None:
    flows = PagedFlows(2_001)
    written = await output_requests.read_written(cast(flow_pond_interfaces.Flows, flows), a_run())
    assert sum(len(names) for names in written["prices"].attempts.values()) == 2_001
    assert flows.pages == 3


async def test_a_full_last_page_is_followed_by_an_empty_one() -> None:
    flows = PagedFlows(1_000)
    await output_requests.read_written(cast(flow_pond_interfaces.Flows, flows), a_run())
    assert flows.pages == 2


def test_outputs_that_no_task_wrote_are_not_pinned() -> None:
    ponds = ledger.Ledger(clock.ManualClock())
    ponds.pond_changed("quant", "lake", data_pond.DataPondSpec(), root="/pond")
    ponds.take_report("quant", "lake", "n0", pond_messages.Report(session="s", sequence=1))
    asked = output_requests.OutputRun(namespace="quant", pond="lake", lease="risk-g3", uid="u")

    def pins(**attempts: tuple[str, ...]) -> Any:
        written = {"prices": output_snapshots.WrittenOutput(attempts=attempts)}
        return output_requests.request_pins(ponds, asked, a_run(), written=written)

    assert pins() == {}
    assert set(pins(n0=("t0.1.1",))) == {"prices"}
    state = ponds.state("quant", "lake")
    assert state is not None
    (order,) = state.order("n0").pins
    assert (order.source.glob, order.source.attempts) == ("*.csv", ("t0.1.1",))


def test_requests_differ_by_generation_and_output() -> None:
    made = {output_requests.pin_request("u", g, o) for g in (1, 2) for o in ("a", "b")}
    assert len(made) == 4
