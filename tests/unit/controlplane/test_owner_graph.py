"""The graph of owner references: which objects the collector is to look at after a change."""

import pytest

from kilnwork.api import meta
from kilnwork.controlplane import owner_graph, store_types
from kilnwork.controlplane.apiserver import deletion

OWNER = store_types.Key("configmaps", "ns", "owner")
CHILD = store_types.Key("configmaps", "ns", "child")
PARENT = meta.ObjectMeta(name="owner", uid="u-owner")


def reference(
    *, blocks: bool = False, api_version: str = "v1", name: str = "owner", uid: str = "u-owner"
) -> meta.OwnerReference:
    return meta.OwnerReference(
        api_version=api_version,
        kind="ConfigMap",
        name=name,
        uid=uid,
        block_owner_deletion=blocks,
    )


def child_with(*references: meta.OwnerReference) -> meta.ObjectMeta:
    return meta.ObjectMeta(name="child", uid="u-child", owner_references=references)


def deleted_object(
    name: str, uid: str, finalizer: str, *references: meta.OwnerReference
) -> meta.ObjectMeta:
    return meta.ObjectMeta(
        name=name,
        uid=uid,
        deletion_timestamp="2026-01-01T00:00:00Z",
        finalizers=(finalizer,),
        owner_references=references,
    )


def test_dependent_is_affected_once_when_references_change() -> None:
    graph = owner_graph.OwnerGraph()
    assert list(graph.note(CHILD, child_with(reference()))) == [CHILD]
    assert list(graph.note(CHILD, child_with(reference()))) == []
    assert graph.dependents("u-owner") == (CHILD,)
    assert graph.owned() == (CHILD,)


def test_object_without_references_is_no_longer_owned() -> None:
    graph = owner_graph.OwnerGraph()
    graph.note(CHILD, child_with(reference()))
    assert list(graph.note(CHILD, child_with())) == []
    assert (graph.owned(), graph.dependents("u-owner")) == ((), ())


def test_dependents_are_affected_by_deletion_of_their_owner() -> None:
    graph = owner_graph.OwnerGraph()
    graph.note(CHILD, child_with(reference()))
    assert list(graph.forget(OWNER, PARENT)) == [CHILD]


@pytest.mark.parametrize(
    ("namespace", "wanted", "absent"),
    [
        ("ns", reference(), True),
        ("other", reference(), False),
        ("ns", reference(name="another"), False),
        ("ns", reference(api_version="apps/v1"), False),
        ("ns", reference(uid="u-2"), False),
    ],
)
def test_deleted_owner_is_absent_for_its_references(
    namespace: str, wanted: meta.OwnerReference, *, absent: bool
) -> None:
    graph = owner_graph.OwnerGraph()
    graph.note(CHILD, child_with(reference()))
    graph.forget(OWNER, PARENT)
    assert graph.is_absent(namespace, wanted) is absent


def test_foreground_deletion_affects_dependents_first() -> None:
    graph = owner_graph.OwnerGraph()
    graph.note(CHILD, child_with(reference(blocks=True)))
    found = deleted_object("owner", "u-owner", deletion.FOREGROUND)
    assert list(graph.note(OWNER, found)) == [CHILD, OWNER]
    assert list(graph.note(OWNER, found)) == []


@pytest.mark.parametrize("blocks", [True, False])
def test_only_blocking_references_hold_an_owner(*, blocks: bool) -> None:
    graph = owner_graph.OwnerGraph()
    graph.note(CHILD, child_with(reference(blocks=blocks)))
    assert graph.blocks("u-owner") is blocks


def test_waiting_owner_is_affected_when_dependent_unblocks() -> None:
    for unblock in (False, True):
        graph = owner_graph.OwnerGraph()
        child = child_with(reference(blocks=True))
        graph.note(CHILD, child)
        graph.note(OWNER, deleted_object("owner", "u-owner", deletion.FOREGROUND))
        if unblock:
            assert OWNER in list(graph.note(CHILD, child_with(reference())))
        else:
            assert list(graph.forget(CHILD, child)) == [OWNER]


def test_dependent_in_foreground_deletion_is_found() -> None:
    graph = owner_graph.OwnerGraph()
    graph.note(CHILD, child_with(reference()))
    assert not graph.has_foreground_dependent("u-owner")
    graph.note(CHILD, deleted_object("child", "u-child", deletion.FOREGROUND, reference()))
    assert graph.has_foreground_dependent("u-owner")


def test_object_that_orphans_dependents_is_affected() -> None:
    graph = owner_graph.OwnerGraph()
    assert list(graph.note(OWNER, deleted_object("owner", "u-owner", deletion.ORPHAN))) == [OWNER]
