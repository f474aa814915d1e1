"""Pond agents that report to the manager's ledger what a test says, and fetch nothing."""

from kilnwork.api import data_pond, pond_messages
from kilnwork.controllers.data_pond import ledger
from kilnwork.data.pond import manifest
from support import controller_world, ponds

POND = "default"
FILES = {f"{number}.csv": f"{number}\n".encode() for number in range(3)}


class FakePondAgents:
    """The agents of DataPond `default`, and the one snapshot that its source has."""

    def __init__(self, known: ledger.Ledger) -> None:
        self.ledger = known
        self.snapshot: manifest.Manifest = ponds.manifest_of(FILES)
        self.ready: set[str] = set()
        """Nodes that have everything they are to have."""
        self._sequence = 0

    def start(self, *nodes: str) -> None:
        """The pond is there, and these agents report."""
        lake = data_pond.PondSource(name="lake", uri="file:///lake/")
        spec = data_pond.DataPondSpec(sources=(lake,))
        self.ledger.pond_changed(controller_world.NS, POND, spec, root="/pond")
        for node in nodes:
            self._report(node, pond_messages.NodeOrder(revision=-1))

    async def ordered(self, node: str) -> pond_messages.NodeOrder:
        """What is wanted of a node now."""
        return await self.ledger.order(controller_world.NS, POND, node, knows=-1, wait_s=0.0)

    async def leases(self, node: str) -> set[str]:
        """Leases that a node is to have."""
        return {lease.name for lease in (await self.ordered(node)).leases}

    async def work(self, *nodes: str) -> None:
        """Carry out the orders: pin the requested sources, and report what `ready` has."""
        for node in nodes:
            self._report(node, await self.ordered(node))

    def _report(self, node: str, order: pond_messages.NodeOrder) -> None:
        self._sequence += 1
        if order.pins:
            self.ledger.put_manifest(controller_world.NS, POND, self.snapshot)
        report = pond_messages.Report(
            session=node,
            sequence=self._sequence,
            knows=order.revision,
            address=f"{node}:1",
            pins=tuple(
                pond_messages.PinReport(id=pin.id, digest=self.snapshot.digest)
                for pin in order.pins
            ),
            leases=tuple(self._lease(node, lease) for lease in order.leases),
        )
        self.ledger.take_report(controller_world.NS, POND, node, report)

    def _lease(self, node: str, lease: pond_messages.LeaseOrder) -> pond_messages.LeaseReport:
        has = node in self.ready
        return pond_messages.LeaseReport(
            name=lease.name,
            snapshots=tuple(
                pond_messages.SnapshotReport(
                    name=one.name,
                    digest=one.digest,
                    paths_digest=pond_messages.paths_digest(one.paths),
                    access=one.access,
                    ready=has,
                    bytes_done=self.snapshot.size if has else 1,
                    bytes_total=self.snapshot.size,
                )
                for one in lease.snapshots
            ),
        )
