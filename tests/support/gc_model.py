"""A model of garbage collection: all states that the collector may reach from one state.

Used by the tests of random owner graphs on both API servers. A `World` is the set of objects at one
moment. `steps` are the single writes that a collector may do there, in any order; `ends` are the
states without further steps. Not a collector: it knows nothing of former uids and sees all objects
at once. Rules: k8s.io/kubernetes/pkg/controller/garbagecollector.
"""

from collections.abc import Iterator
from typing import NamedTuple

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
POLICIES = {"Foreground": FOREGROUND, "Orphan": ORPHAN, "Background": None}

NAMESPACED = {"ConfigMap": True, "Secret": True, "ClusterRole": False}
"""The kinds that are served; owners of others decide nothing."""

MAX_WORLDS = 50_000


class Reference(NamedTuple):
    """An owner reference."""

    kind: str
    name: str
    uid: str
    blocking: bool = False


class Thing(NamedTuple):
    """An object. `namespace` is empty for a cluster-scoped one."""

    kind: str
    namespace: str
    name: str
    uid: str
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()


World = frozenset[Thing]


def ends(world: World) -> set[World]:
    seen, front, found = {world}, [world], set[World]()
    while front:
        one = front.pop()
        following = set(steps(one))
        if not following:
            found.add(one)
        front += following - seen
        seen |= following
        assert len(seen) < MAX_WORLDS, "the graph is too large for this model"
    return found


def steps(world: World) -> Iterator[World]:
    for thing in world:
        if not thing.deleting:
            yield from _step_of_dependent(world, thing)
        elif ORPHAN in thing.finalizers:
            yield _orphaned(world, thing)
        elif FOREGROUND in thing.finalizers and not _is_blocked(world, thing):
            yield without_finalizer(world, thing, FOREGROUND)


def _step_of_dependent(world: World, thing: Thing) -> Iterator[World]:
    states = [_state(world, thing, reference) for reference in thing.references]
    if None in states or not {"waiting", "dangling"} & set(states):
        return
    if "solid" in states:
        gone = {
            r.uid for r, state in zip(thing.references, states, strict=True) if state != "solid"
        }
        yield _without_references(world, thing, gone)
        return
    dependents = [d for d in world if any(r.uid == thing.uid for r in d.references)]
    if "waiting" not in states or not dependents:
        yield deleted(world, thing, None)
        return
    freed = tuple(r._replace(blocking=False) for r in thing.references)
    if freed != thing.references and any(d.deleting for d in dependents):
        yield replaced(world, thing, thing._replace(references=freed))
        # One that is deleted otherwise may have been in foreground deletion before.
        if any(d.deleting and FOREGROUND in d.finalizers for d in dependents):
            return
    yield deleted(world, thing, "Foreground")


def _state(world: World, thing: Thing, reference: Reference) -> str | None:
    """Return whether a reference is solid, waiting or dangling; None if it stops every decision."""
    namespaced = NAMESPACED.get(reference.kind)
    if namespaced is None or (namespaced and not thing.namespace):
        return None
    namespace = thing.namespace if namespaced else ""
    for owner in world:
        if owner.uid == reference.uid:
            if owner[:3] != (reference.kind, namespace, reference.name):
                return "dangling"
            waits = owner.deleting and FOREGROUND in owner.finalizers
            return "waiting" if waits else "solid"
    return "dangling"


def _is_blocked(world: World, owner: Thing) -> bool:
    return any(r.blocking and r.uid == owner.uid for d in world for r in d.references)


def _orphaned(world: World, owner: Thing) -> World:
    for dependent in world:
        world = _without_references(world, dependent, {owner.uid})
    (same,) = (thing for thing in world if thing.uid == owner.uid)
    return without_finalizer(world, same, ORPHAN)


def _without_references(world: World, thing: Thing, uids: set[str]) -> World:
    kept = tuple(r for r in thing.references if r.uid not in uids)
    return replaced(world, thing, thing._replace(references=kept))


def without_finalizer(world: World, thing: Thing, name: str) -> World:
    """Remove a finalizer; a deleted object without finalizers is removed too."""
    kept = tuple(f for f in thing.finalizers if f != name)
    if thing.deleting and not kept:
        return world - {thing}
    return replaced(world, thing, thing._replace(finalizers=kept))


def deleted(world: World, thing: Thing, policy: str | None) -> World:
    """Apply a DELETE with a propagation policy; without one the object's own finalizers decide."""
    finalizers = thing.finalizers
    if policy is not None:
        added = POLICIES[policy]
        kept = tuple(f for f in finalizers if f not in (FOREGROUND, ORPHAN))
        finalizers = (*kept, added) if added else kept
    if not finalizers:
        return world - {thing}
    return replaced(world, thing, thing._replace(deleting=True, finalizers=finalizers))


def replaced(world: World, old: Thing, new: Thing) -> World:
    return (world - {old}) | {new}
