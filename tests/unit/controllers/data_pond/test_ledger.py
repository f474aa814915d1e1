"""The ledger: what is wanted comes to the right nodes, and nothing is released unasked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import data_pond, pond_messages, pond_views
from kilnwork.controllers.data_pond import ledger, model
from kilnwork.data import errors
from kilnwork.kit import clock
from support import ponds

NS, POND = "quant", "lake"
MANIFEST = ponds.manifest_of({"a": b"1", "b": b"22", "c": b"333"})
DIGEST = MANIFEST.digest
DISK = data_pond.SnapshotSource(source="disk")


class World:
    """A ledger, its clock, and agents that say what a test lets them say."""

    def __init__(self) -> None:
        self.time = clock.ManualClock()
        self.ledger = ledger.Ledger(self.time)
        self.notified = 0
        self.ledger.subscribe(self._tell)
        sources = (
            data_pond.PondSource(name="disk", uri="file:///data"),
            data_pond.PondSource(name="work", uri="kiln:2026-11-1"),
            data_pond.PondSource(name="web", uri="https://x/base/"),
        )
        self.spec = data_pond.DataPondSpec(sources=sources)
        self.ledger.pond_changed(NS, POND, self.spec, root="/pond")
        self._sequences: dict[str, int] = {}

    def _tell(self) -> None:
        self.notified += 1

    def report(self, node: str, *, session: str = "s", **facts: Any) -> pond_messages.NodeOrder:
        number = self._sequences[node] = self._sequences.get(node, 0) + 1
        facts.setdefault("address", f"{node}:1")
        made = pond_messages.Report(session=session, sequence=number, **facts)
        self.ledger.take_report(NS, POND, node, made)
        return self.order(node)

    def order(self, node: str) -> pond_messages.NodeOrder:
        state = self.ledger.state(NS, POND)
        assert state is not None
        return state.order(node)

    def pin(self, request: str = "r", source: data_pond.SnapshotSource = DISK) -> model.Pin:
        return self.ledger.want_pin(NS, POND, source, request=request)

    def want(self, lease: str = "set-g1", nodes: list[str] | None = None, **facts: Any) -> None:
        made = model.WantedSnapshot(name="market", digest=DIGEST, **facts)
        self.ledger.want(NS, POND, lease, nodes=nodes, snapshots=[made])

    def ready(self, lease: str = "set-g1") -> dict[str, model.Readiness]:
        return self.ledger.ready(NS, POND, lease)


def holding(here: int = 3) -> pond_messages.HoldingReport:
    return pond_messages.HoldingReport(
        digest=DIGEST, files=3, bytes=6, files_here=here, bytes_here=2 * here
    )


def lease_report(name: str = "set-g1", **facts: Any) -> pond_messages.LeaseReport:
    given = {"paths_digest": "all", "access": "read", **facts}
    one = pond_messages.SnapshotReport(name="market", digest=DIGEST, **given)
    return pond_messages.LeaseReport(name=name, snapshots=(one,))


@pytest.fixture
def world() -> World:
    return World()


# pins


def test_one_node_is_ordered_to_pin(world: World) -> None:
    world.report("n1")
    world.report("n2")

    assert world.pin().state == model.PENDING
    asked = {node: world.order(node).pins for node in ("n1", "n2")}

    [[pin]] = [pins for pins in asked.values() if pins]
    assert (pin.id, pin.source.uri) == ("r", "file:///data")


def test_pin_is_done_when_its_manifest_is_stored(world: World) -> None:
    world.report("n1")
    world.pin()
    world.report("n1", pins=(pond_messages.PinReport(id="r", digest=DIGEST),))
    assert world.pin().state == model.PENDING

    world.ledger.put_manifest(NS, POND, MANIFEST)

    assert (world.pin().state, world.pin().digest, world.pin().bytes) == ("Pinned", DIGEST, 6)
    assert world.order("n1").pins == ()


def test_same_request_gives_the_same_pin_and_another_reads_again(world: World) -> None:
    world.report("n1")
    world.pin("r1")
    world.report("n1", pins=(pond_messages.PinReport(id="r1", digest=DIGEST),))
    world.ledger.put_manifest(NS, POND, MANIFEST)

    assert world.pin("r1").state == model.PINNED
    assert world.pin("r2").state == model.PENDING
    assert [pin.id for pin in world.order("n1").pins] == ["r2"]

    world.ledger.forget_pin(NS, POND, "r2")
    assert world.order("n1").pins == ()


def test_pin_of_a_silent_node_moves_to_another_node(world: World) -> None:
    world.report("n1")
    world.pin()
    assert world.order("n1").pins
    world.time.advance(pond_messages.SILENT_S + 1)

    assert world.report("n2").pins
    assert world.order("n1").pins == ()


def test_node_that_has_read_the_source_before_pins_it(world: World) -> None:
    key = pond_messages.source_key(pond_messages.SourceOrder(name="disk", uri="file:///data"))
    world.report("n1")
    world.report("n2", sources=(key,))

    world.pin()

    assert world.order("n1").pins == ()
    assert len(world.order("n2").pins) == 1


@pytest.mark.parametrize(("lasting", "state"), [(True, "Failed"), (False, "Pending")])
def test_progress_of_a_pin_is_passed_on(
    world: World,
    lasting: bool,  # noqa: FBT001 - a parameter
    state: str,
) -> None:
    world.report("n1")
    world.pin()
    world.order("n1")
    trouble = pond_messages.PondTrouble(reason="SourceMissing", message="gone", lasting=lasting)

    world.report("n1", pins=(pond_messages.PinReport(id="r", trouble=trouble),))

    pin = world.pin()
    assert (pin.state, pin.reason, pin.message) == (state, "SourceMissing", "node n1: gone")


def test_pin_with_a_given_digest_waits_for_its_manifest(world: World) -> None:
    def asked() -> model.Pin:
        return world.ledger.want_pin(NS, POND, DISK, request="r", digest=DIGEST)

    assert asked().state == model.PENDING
    assert world.report("n1", holdings=(holding(),)).uploads == (DIGEST,)
    world.ledger.put_manifest(NS, POND, MANIFEST)

    assert asked().state == model.PINNED
    assert world.order("n1").uploads == ()


def test_source_with_another_digest_than_given_is_refused(world: World) -> None:
    other = ponds.manifest_of({"a": b"other"})
    world.report("n1")
    world.ledger.want_pin(NS, POND, DISK, request="r", digest=DIGEST)
    world.order("n1")
    world.ledger.put_manifest(NS, POND, other)

    world.report("n1", pins=(pond_messages.PinReport(id="r", digest=other.digest),))

    pin = world.ledger.want_pin(NS, POND, DISK, request="r", digest=DIGEST)
    assert (pin.state, pin.reason) == (model.FAILED, "SourceChanged")


def test_without_a_pond_a_pin_waits(world: World) -> None:
    pin = world.ledger.want_pin(NS, "sea", DISK, request="r")

    assert (pin.state, pin.reason) == (model.PENDING, "WaitingForPond")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (data_pond.SnapshotSource(), "exactly one"),
        (data_pond.SnapshotSource(source="disk", uri="file:///data"), "exactly one"),
        (data_pond.SnapshotSource(source="sea"), "from.source: 'sea' is none"),
        (data_pond.SnapshotSource(uri="file:///etc/passwd"), "not below"),
        (data_pond.SnapshotSource(uri="file:///data2"), "not below"),
        (data_pond.SnapshotSource(uri="file:///data/../etc"), "'..'"),
        (data_pond.SnapshotSource(uri="file:///data/%2e%2e/etc"), "'..'"),
        (data_pond.SnapshotSource(source="disk", path="../etc"), "from.path"),
        (data_pond.SnapshotSource(source="disk", paths=("/etc",)), "from.paths"),
        (data_pond.SnapshotSource(source="disk", paths=("a", "a")), "twice"),
        (data_pond.SnapshotSource(source="disk", paths=("a",), glob="*"), "not both"),
        (data_pond.SnapshotSource(source="disk", glob="a[b"), "pattern"),
        (data_pond.SnapshotSource(inline={}), "from.inline"),
        (data_pond.SnapshotSource(inline={"../a": ""}), "from.inline"),
        (data_pond.SnapshotSource(inline={"a": "x" * 600_000}), "600,000 bytes"),
        (data_pond.SnapshotSource(files="2026-11-1", path="out"), "not 'out'"),
        (data_pond.SnapshotSource(files=""), "names no file job"),
        (data_pond.SnapshotSource(source="work", path="../x"), "from.path"),
        (data_pond.SnapshotSource(uri="kiln:2026-11-2"), "not below"),
    ],
)
def test_undeclared_sources_are_refused(
    world: World, source: data_pond.SnapshotSource, why: str
) -> None:
    world.report("n1")

    pin = world.pin("r", source)

    assert (pin.state, pin.reason) in [("Failed", "SourceRefused"), ("Failed", "ManifestRefused")]
    assert why in pin.message
    assert world.order("n1").pins == ()


@pytest.mark.parametrize(
    ("source", "uri"),
    [
        (data_pond.SnapshotSource(source="web", path="d e"), "https://x/base/d%20e"),
        (data_pond.SnapshotSource(source="web", path="d", paths=("f",)), "https://x/base/d/"),
        (data_pond.SnapshotSource(uri="https://x/base/q"), "https://x/base/q"),
        (data_pond.SnapshotSource(uri="file:///data"), "file:///data"),
        (data_pond.SnapshotSource(source="disk", path="d/e"), "file:///data/d/e"),
        (data_pond.SnapshotSource(source="disk", path="%2e%2e/e"), "file:///data/%252e%252e/e"),
        (data_pond.SnapshotSource(source="disk", path="a#b?c"), "file:///data/a%23b%3Fc"),
        (data_pond.SnapshotSource(files="2026-11-1"), "kiln:2026-11-1/results"),
        (data_pond.SnapshotSource(files="a b?", path="parts"), "kiln:a%20b%3F/parts"),
        (data_pond.SnapshotSource(source="work"), "kiln:2026-11-1/results"),
        (data_pond.SnapshotSource(source="work", path="input"), "kiln:2026-11-1/input"),
        (data_pond.SnapshotSource(uri="kiln:2026-11-1/errors"), "kiln:2026-11-1/errors"),
    ],
)
def test_order_contains_the_address_of_the_source(
    world: World, source: data_pond.SnapshotSource, uri: str
) -> None:
    world.report("n1")
    world.pin("r", source)

    [pin] = world.order("n1").pins
    assert pin.source.uri == uri


@pytest.mark.parametrize(
    ("source", "below"),
    [
        (data_pond.SnapshotSource(source="disk"), 0),
        (data_pond.SnapshotSource(source="disk", path="d/e"), 2),
        (data_pond.SnapshotSource(uri="file:///data/d", path="e"), 2),
    ],
)
def test_order_says_which_path_components_are_below_the_source(
    world: World, source: data_pond.SnapshotSource, below: int
) -> None:
    world.report("n1")
    world.pin("r", source)

    [pin] = world.order("n1").pins
    assert pin.source.below == below


def test_pin_of_a_lost_node_moves_to_another_node(world: World) -> None:
    world.report("n1")
    world.pin()
    before = world.order("n1")
    assert before.pins
    world.time.advance(pond_messages.SILENT_S)
    world.report("n2")

    after = world.order("n2")

    assert [one.id for one in after.pins] == ["r"]
    assert after.revision != before.revision


def test_a_pin_says_why_no_agent_reports(world: World) -> None:
    world.ledger.explain(NS, POND, "Pod lake-n1: image is not there")

    assert world.pin().message == (
        "DataPond quant/lake has no agent that reports: Pod lake-n1: image is not there"
    )
    assert world.ledger.obstacle(NS, POND) == "Pod lake-n1: image is not there"


# agents that are silent, ponds that are deleted


def test_subscribers_are_notified_of_a_silent_agent(world: World) -> None:
    world.report("n1")
    assert world.ledger.note_silence(NS, POND) == pond_messages.SILENT_S
    before = world.notified

    world.time.advance(pond_messages.SILENT_S)

    assert world.ledger.note_silence(NS, POND) is None
    assert world.notified == before + 1
    assert world.ledger.note_silence(NS, POND) is None
    assert world.notified == before + 1


def test_agents_of_a_deleted_pond_are_ordered_to_remove_all_data(world: World) -> None:
    world.report("n1", leases=(lease_report("user_a"),))
    world.want()
    before = world.order("n1")
    assert before.leases

    world.ledger.remove(NS, POND)

    order = world.order("n1")
    assert (order.remove, order.leases, order.revision > before.revision) == (True, (), True)


def test_deleted_pond_starts_nothing_new(world: World) -> None:
    world.report("n1")
    world.pin("old")
    world.ledger.pond_changed(NS, POND, world.spec, root="/pond", deleted=True)

    assert world.pin("old").reason == "WaitingForAgent"
    pin = world.pin("new")
    assert (pin.reason, "is being deleted" in pin.message) == ("WaitingForPond", True)
    with pytest.raises(errors.LeaseRefused, match="being deleted"):
        world.ledger.ask(NS, POND, "a", pond_views.LeaseRequest(snapshots=()))


# leases


def test_lease_applies_to_the_given_nodes(world: World) -> None:
    for node in ("n1", "n2"):
        world.report(node)

    world.want(nodes=["n2"])

    assert world.order("n1").leases == ()
    [lease] = world.order("n2").leases
    assert (lease.name, lease.snapshots[0].digest) == ("set-g1", DIGEST)
    assert set(world.ready()) == {"n2"}


def test_lease_without_nodes_applies_to_all_nodes(world: World) -> None:
    world.report("n1")
    world.want()
    assert set(world.ready()) == {"n1"}

    world.report("n2")

    assert set(world.ready()) == {"n1", "n2"}
    assert world.order("n2").leases


def test_node_is_ready_when_it_reports_the_wanted_snapshots(world: World) -> None:
    world.ledger.put_manifest(NS, POND, MANIFEST)
    world.report("n1")
    world.want()
    assert world.ready()["n1"].bytes_total == 6
    assert not world.ready()["n1"].ready

    world.report("n1", leases=(lease_report(bytes_done=2, bytes_total=6),))
    assert (world.ready()["n1"].ready, world.ready()["n1"].bytes_done) == (False, 2)

    world.report("n1", leases=(lease_report(ready=True, bytes_done=6, bytes_total=6),))
    assert world.ready()["n1"].ready


@pytest.mark.parametrize(
    "facts", [{"digest": "sha256:0"}, {"paths_digest": "other"}, {"access": "copy"}]
)
def test_report_about_another_snapshot_does_not_count(world: World, facts: dict[str, str]) -> None:
    world.report("n1")
    world.want()
    given: dict[str, Any] = {"digest": DIGEST, "paths_digest": "all", "access": "read", **facts}
    other = pond_messages.SnapshotReport(name="market", ready=True, **given)

    world.report("n1", leases=(pond_messages.LeaseReport(name="set-g1", snapshots=(other,)),))

    assert not world.ready()["n1"].ready


def test_a_node_that_is_silent_is_not_ready(world: World) -> None:
    world.report("n1", leases=(lease_report(ready=True),))
    world.want(nodes=["n1", "n2"])
    assert world.ready()["n1"].ready
    assert world.ready()["n2"].reason == "AgentSilent"

    world.time.advance(pond_messages.SILENT_S + 1)

    assert (world.ready()["n1"].ready, world.ready()["n1"].reason) == (False, "AgentSilent")
    assert world.ledger.nodes(NS, POND) == frozenset()
    assert world.ledger.holders(NS, POND, DIGEST) == {}


def test_problem_of_a_node_is_passed_on(world: World) -> None:
    world.report("n1")
    world.want()
    trouble = pond_messages.PondTrouble(reason="PondFull", message="no room")

    world.report("n1", leases=(lease_report(trouble=trouble),))

    found = world.ready()["n1"]
    assert (found.reason, found.message, found.lasting) == ("PondFull", "node n1: no room", False)


def test_orders_contain_the_holders(world: World) -> None:
    world.report("n1", holdings=(holding(),))
    world.report("n2", holdings=(holding(1),))
    world.report("n3", holdings=(holding(0),))
    world.want()

    order = world.report("n3")

    assert order.holders == {DIGEST: ("n1", "n2")}
    assert order.peers == {"n1": "n1:1", "n2": "n2:1"}
    assert world.ledger.holders(NS, POND, DIGEST) == {"n1": 6, "n2": 2}


def test_orders_contain_no_peers_if_peers_are_disabled(world: World) -> None:
    fetch = data_pond.PondFetch(from_peers=False)
    world.ledger.pond_changed(NS, POND, data_pond.DataPondSpec(fetch=fetch), root="/pond")
    world.report("n1", holdings=(holding(),))
    world.want()

    assert world.report("n2").holders == {}


def test_a_released_lease_is_released_by_all_nodes_that_have_it(world: World) -> None:
    world.want()
    world.report("n1", leases=(lease_report(),))
    world.ledger.release(NS, POND, "set-g1")

    assert world.order("n1").released == ("set-g1",)
    assert world.order("n1").leases == ()
    assert world.report("n1").released == ()
    assert world.report("n2", leases=(lease_report(),)).released == ("set-g1",)


def test_node_removed_from_a_lease_releases_it(world: World) -> None:
    world.want(nodes=["n1", "n2"])
    world.report("n1", leases=(lease_report(),))

    world.want(nodes=["n2"])

    assert world.order("n1").released == ("set-g1",)
    assert world.order("n2").leases


def test_a_lease_without_a_request_is_kept(world: World) -> None:
    """The manager was restarted."""
    order = world.report("n1", leases=(lease_report("set-g7"),), holdings=(holding(),))

    assert order.released == ()
    assert world.ledger.leases(NS) == {(POND, "set-g7")}
    world.ledger.release(NS, POND, "set-g7")
    assert world.order("n1").released == ("set-g7",)
    assert world.ledger.leases(NS) == frozenset()


def test_leases_are_separate_for_each_namespace(world: World) -> None:
    world.want()
    world.report("n1", leases=(lease_report(ready=True),))

    assert world.ledger.leases("other") == frozenset()
    assert world.ledger.ready("other", POND, "set-g1") == {}
    world.ledger.release("other", POND, "set-g1")
    assert world.order("n1").released == ()
    assert world.ready()["n1"].ready


def test_invalid_lease_names_are_refused(world: World) -> None:
    with pytest.raises(errors.LeaseRefused):
        world.want("../x")
    assert world.ledger.leases(NS) == frozenset()


# nodes that share a disk


def test_node_that_shares_a_disk_is_served_by_the_owner(world: World) -> None:
    world.report("n1", store="disk-1", holdings=(holding(),))
    world.report("n2", store="disk-1", shares=True, address="")
    world.report("n3", store="disk-3")

    world.want(nodes=["n2"])

    assert [lease.name for lease in world.order("n1").leases] == ["set-g1"]
    assert world.order("n3").leases == ()
    world.report("n1", store="disk-1", holdings=(holding(),), leases=(lease_report(ready=True),))
    assert world.ready()["n2"].ready
    assert world.ledger.holders(NS, POND, DIGEST) == {"n1": 6, "n2": 6}
    world.want("set-g2", nodes=["n3"])
    assert world.order("n3").holders == {DIGEST: ("n1",)}


def test_a_node_that_shares_a_disk_pins_nothing(world: World) -> None:
    world.report("n1", store="disk-1", shares=True, address="")

    assert world.pin().state == model.PENDING
    assert world.order("n1").pins == ()
    assert world.report("n2", store="disk-1").pins


def test_lease_is_kept_while_a_node_that_shares_the_disk_needs_it(world: World) -> None:
    world.want(nodes=["n1", "n2"])
    world.report("n1", store="disk-1", leases=(lease_report(),))
    world.report("n2", store="disk-1", shares=True, address="")

    world.want(nodes=["n2"])

    assert world.order("n1").released == ()


def test_each_node_gets_only_the_files_that_it_needs(world: World) -> None:
    """An agent that serves two nodes gets those of both."""
    world.report("n1")
    world.report("n2", store="disk-2")
    world.report("n3", store="disk-2", shares=True, address="")
    needs = {"n1": ("a",), "n2": ("b",), "n3": ("b", "c")}
    world.want(nodes=["n1", "n2", "n3"], paths_by_node=needs)

    wanted = {node: world.order(node).leases[0].snapshots[0].paths for node in ("n1", "n2")}
    assert wanted == {"n1": ("a",), "n2": ("b", "c")}

    both = pond_messages.paths_digest(("b", "c"))
    reported = lease_report(ready=True, paths_digest=both)
    world.report("n1", leases=(reported,))  # of other files than it needs
    world.report("n2", store="disk-2", leases=(reported,))
    ready = {node: one.ready for node, one in world.ready().items()}
    assert ready == {"n1": False, "n2": True, "n3": True}


def test_node_without_paths_needs_no_files(world: World) -> None:
    world.want(nodes=["n1", "n2"], paths_by_node={"n1": ("a",)})
    world.report("n2", leases=(lease_report(),))

    assert world.order("n2").leases[0].snapshots[0].paths == ()


# messages


def test_late_report_is_ignored(world: World) -> None:
    world.report("n1", used=1)
    world.report("n1", used=2)
    old = pond_messages.Report(session="s", sequence=1, used=1)

    world.ledger.take_report(NS, POND, "n1", old)

    [view] = world.ledger.node_views(NS, POND) or []
    assert view.used == 2


def test_reports_of_a_restarted_agent_count_from_one(world: World) -> None:
    world.report("n1", used=1)
    new = pond_messages.Report(session="t", sequence=1, used=5)

    world.ledger.take_report(NS, POND, "n1", new)

    [view] = world.ledger.node_views(NS, POND) or []
    assert view.used == 5


def test_repeated_report_does_not_notify_subscribers(world: World) -> None:
    world.report("n1")
    world.want()
    before, revision = world.notified, world.order("n1").revision

    world.report("n1")
    world.want()

    assert (world.notified, world.order("n1").revision) == (before, revision)


def test_subscribers_are_notified_of_progress(world: World) -> None:
    world.report("n1")
    world.want()
    before, revision = world.notified, world.order("n1").revision

    world.report("n1", leases=(lease_report(bytes_done=1),))
    world.report("n1", leases=(lease_report(bytes_done=2),))

    assert world.notified >= before + 2
    assert world.order("n1").revision <= revision + 1, "agents are not woken by progress"


def test_order_revisions_of_another_manager_differ(world: World) -> None:
    first = world.report("n1").revision
    world.time.advance(1)

    again = ledger.Ledger(world.time)
    again.pond_changed(NS, POND, world.spec, root="/pond")

    state = again.state(NS, POND)
    assert state is not None
    assert state.order("n1").revision != first


async def test_waiting_order_request_returns_when_the_manager_stops(world: World) -> None:
    revision = world.report("n1").revision
    world.ledger.close()

    order = await world.ledger.order(NS, POND, "n1", knows=revision, wait_s=60)

    assert order.revision == revision


def test_unwanted_manifests_are_dropped(world: World) -> None:
    world.ledger.put_manifest(NS, POND, MANIFEST)
    world.want()
    assert world.ledger.find_manifest(NS, POND, DIGEST) is not None

    world.ledger.release(NS, POND, "set-g1")

    assert world.ledger.find_manifest(NS, POND, DIGEST) is None


def test_deleted_pond_is_forgotten(world: World) -> None:
    world.want()
    world.ledger.pond_gone(NS, POND)

    assert world.ledger.state(NS, POND) is None
    assert world.ledger.node_views(NS, POND) is None
    assert world.ledger.leases(NS) == frozenset()


def test_the_directory_of_a_run_is_the_same_on_all_nodes(world: World) -> None:
    assert world.ledger.directory(NS, POND, "set-g1") == "/pond/runs/quant/set-g1"
    assert world.ledger.directory(NS, "sea", "set-g1") is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["want", "release", "report", "silence", "some"]),
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["g1", "g2"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_order_never_contains_and_releases_the_same_lease(
    steps: list[tuple[str, str, str]],
) -> None:
    world = World()
    wanted: dict[str, list[str] | None] = {}
    on_disk: dict[str, set[str]] = {node: set() for node in ("n1", "n2", "n3")}
    for what, node, lease in steps:
        if what == "want":
            world.want(lease)
            wanted[lease] = None
        elif what == "some":
            world.want(lease, nodes=[node])
            wanted[lease] = [node]
        elif what == "release":
            world.ledger.release(NS, POND, lease)
            wanted.pop(lease, None)
        elif what == "silence":
            world.time.advance(60)
        else:
            order = world.report(node, leases=tuple(lease_report(n) for n in on_disk[node]))
            ordered = {one.name for one in order.leases}
            assert not ordered & set(order.released)
            on_disk[node] = (on_disk[node] | ordered) - set(order.released)
    for node in on_disk:
        world.report(node, leases=tuple(lease_report(n) for n in on_disk[node]))
        order = world.order(node)
        after = (on_disk[node] | {one.name for one in order.leases}) - set(order.released)
        assert after == {name for name, nodes in wanted.items() if node in (nodes or on_disk)}


A, B = ponds.manifest_of({"a.csv": b"1"}), ponds.manifest_of({"b.csv": b"2"})
WRITTEN = {"a": ("t1.1.1",), "b": ("t2.1.2", "t3.1.1")}


def output(world: World) -> model.Pin:
    return world.ledger.want_output(
        NS, POND, request="out", lease="set-g1", attempts=WRITTEN, glob="*.csv"
    )


def pinned_output(world: World) -> model.Pin:
    """Both nodes pin their part."""
    for node in WRITTEN:
        world.report(node)
    output(world)
    for node, made in (("a", A), ("b", B)):
        [order] = world.order(node).pins
        world.report(node, pins=(pond_messages.PinReport(id=order.id, digest=made.digest),))
        world.ledger.put_manifest(NS, POND, made)
    return output(world)


def test_each_node_pins_the_output_written_on_it(world: World) -> None:
    for node in WRITTEN:
        world.report(node)
    assert output(world).state == model.PENDING
    for node, names in WRITTEN.items():
        [order] = world.order(node).pins
        assert order.source.uri == f"file:///pond/outputs/{NS}/set-g1"
        assert (order.source.attempts, order.source.glob) == (names, "*.csv")


def test_output_is_pinned_when_all_parts_are_and_nodes_keep_their_parts(world: World) -> None:
    whole = pinned_output(world)
    both = ponds.manifest_of({"a.csv": b"1", "b.csv": b"2"})
    assert (whole.state, whole.digest) == (model.PINNED, both.digest)
    kept = model.WantedSnapshot(
        name="prices", digest=whole.digest, paths_by_node=whole.paths_by_node
    )
    world.ledger.want(NS, POND, "set-g1.out", nodes=list(whole.paths_by_node), snapshots=[kept])
    for node, path in (("a", "a.csv"), ("b", "b.csv")):
        [lease] = world.order(node).leases
        assert [one.paths for one in lease.snapshots] == [(path,)]
    assert world.ledger.find_manifest(NS, POND, whole.digest) is not None


def test_output_pin_names_the_silent_node_that_it_waits_for(world: World) -> None:
    world.report("a")
    found = output(world)
    assert found.state == model.PENDING
    assert found.message.startswith("node ")
    assert (
        "does not report"
        in world.ledger.want_output(
            NS, POND, request="o", lease="l", attempts={"gone": ("t.1.1",)}
        ).message
    )


def test_new_manager_requests_the_manifest_of_a_known_pin() -> None:
    """The manager before had it; agents go on with pins that are the same."""
    world = World()
    world.report("a", holdings=(held(A.digest),))
    world.ledger.want_output(NS, POND, request="o", lease="set-g1", attempts={"a": ("t.1.1",)})
    [order] = world.order("a").pins
    said = (pond_messages.PinReport(id=order.id, digest=A.digest),)
    assert world.report("a", holdings=(held(A.digest),), pins=said).uploads == (A.digest,)


def held(digest: str) -> pond_messages.HoldingReport:
    return pond_messages.HoldingReport(digest=digest, files=1, bytes=1, files_here=1, bytes_here=1)


def test_lease_order_says_whether_tasks_write_outputs(world: World) -> None:
    world.report("a")
    world.ledger.want(NS, POND, "set-g1", nodes=["a"], snapshots=(), outputs=True)
    [lease] = world.order("a").leases
    assert (lease.outputs, lease.snapshots) == (True, ())
    assert not world.ready()["a"].ready
    world.report("a", leases=(pond_messages.LeaseReport(name="set-g1"),))
    assert world.ready()["a"].ready


def test_output_of_another_set_is_pinned_by_its_digest(world: World) -> None:
    taken = data_pond.SnapshotSource(output=data_pond.OutputRef(set="writer", name="prices"))
    world.report("a")
    pin = world.ledger.want_pin(NS, POND, taken, request="r", digest=A.digest)
    assert (pin.state, pin.message) == (model.PENDING, f"no node that reports has {A.digest}")
    assert world.report("a", holdings=(held(A.digest),)).uploads == (A.digest,)
    world.ledger.put_manifest(NS, POND, A)
    assert world.ledger.want_pin(NS, POND, taken, request="r").state == model.PINNED
