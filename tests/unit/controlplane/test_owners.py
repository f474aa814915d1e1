"""Who depends on whom, and what is to be looked at after a change."""

import pytest

from kilnwork.api import meta
from kilnwork.controlplane import objects, owners
from kilnwork.controlplane.apiserver import deletion

OWNER = objects.Key("configmaps", "ns", "owner")
DEPENDENT = objects.Key("configmaps", "ns", "dependent")
WHEN = "2026-01-01T00:00:00Z"


def refers(*, uid: str = "o", name: str = "owner", blocks: bool = False) -> meta.OwnerReference:
    return meta.OwnerReference(
        api_version="v1", kind="ConfigMap", name=name, uid=uid, block_owner_deletion=blocks
    )


def about(uid: str, *references: meta.OwnerReference) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=uid, uid=uid, owner_references=references)


def ends(uid: str, finalizer: str) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=uid, uid=uid, deletion_timestamp=WHEN, finalizers=(finalizer,))


@pytest.fixture
def graph() -> owners.OwnerGraph:
    found = owners.OwnerGraph()
    found.note(OWNER, about("o"))
    found.note(DEPENDENT, about("d", refers(blocks=True)))
    return found


def test_dependents_are_known_by_the_uid_of_the_owner(graph: owners.OwnerGraph) -> None:
    assert graph.dependents("o") == (DEPENDENT,)
    assert graph.dependents("d") == ()
    assert graph.owned() == (DEPENDENT,)
    assert graph.blocks("o")
    graph.note(DEPENDENT, about("d"))
    assert graph.dependents("o") == graph.owned() == ()
    assert not graph.blocks("o")


def test_a_changed_reference_is_looked_at_once(graph: owners.OwnerGraph) -> None:
    assert list(graph.note(DEPENDENT, about("d", refers(blocks=True)))) == []
    assert list(graph.note(DEPENDENT, about("d", refers()))) == [DEPENDENT]


def test_the_end_of_an_owner_concerns_its_dependents(graph: owners.OwnerGraph) -> None:
    assert list(graph.forget(OWNER, about("o"))) == [DEPENDENT]
    assert list(graph.forget(DEPENDENT, about("d"))) == []


def test_foreground_deletion_looks_at_dependents_before_the_owner(
    graph: owners.OwnerGraph,
) -> None:
    ending = ends("o", deletion.FOREGROUND)
    assert list(graph.note(OWNER, ending)) == [DEPENDENT, OWNER]
    assert list(graph.note(OWNER, ending)) == []


def test_a_waiting_owner_is_looked_at_when_nothing_blocks_it(graph: owners.OwnerGraph) -> None:
    graph.note(OWNER, ends("o", deletion.FOREGROUND))
    assert list(graph.note(DEPENDENT, about("d", refers()))) == [OWNER, DEPENDENT]
    assert list(graph.forget(DEPENDENT, about("d"))) == [OWNER]


def test_an_owner_that_orphans_is_looked_at(graph: owners.OwnerGraph) -> None:
    assert list(graph.note(OWNER, ends("o", deletion.ORPHAN))) == [OWNER]


def test_a_dependent_in_foreground_deletion_is_seen(graph: owners.OwnerGraph) -> None:
    assert not graph.has_foreground_dependent("o")
    found = ends("d", deletion.FOREGROUND)
    found = meta.ObjectMeta(
        name="d",
        uid="d",
        deletion_timestamp=WHEN,
        finalizers=found.finalizers,
        owner_references=(refers(),),
    )
    graph.note(DEPENDENT, found)
    assert graph.has_foreground_dependent("o")


@pytest.mark.parametrize(
    ("namespace", "reference", "absent"),
    [
        ("ns", refers(), True),
        ("other", refers(), False),
        ("ns", refers(name="another"), False),
        ("ns", refers(uid="x"), False),
    ],
)
def test_a_deleted_owner_is_remembered_as_it_was_referred_to(
    graph: owners.OwnerGraph, namespace: str, reference: meta.OwnerReference, *, absent: bool
) -> None:
    graph.forget(OWNER, about("o"))
    assert graph.is_absent(namespace, reference) is absent


def test_the_memory_of_deleted_owners_is_bounded(graph: owners.OwnerGraph) -> None:
    graph.forget(OWNER, about("o"))
    for number in range(owners.MAX_ABSENT):
        key = objects.Key("configmaps", "ns", f"c{number}")
        graph.note(key, about(f"c{number}", refers(uid=f"o{number}", name=f"o{number}")))
        graph.forget(objects.Key("configmaps", "ns", f"o{number}"), about(f"o{number}"))
        assert graph.is_absent("ns", refers()) is (number < owners.MAX_ABSENT - 1)
