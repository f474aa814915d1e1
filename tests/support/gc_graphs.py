"""Random owner graphs, changed on an API server step by step beside a model.

`play(admin, seed, namespaces)` creates objects of several kinds in two namespaces and cluster-wide,
gives them owners, deletes some with all policies and removes finalizers. After each step the server
must reach a state that `gc_model` allows.
"""

import random
import uuid
from typing import Any

from support import gc_model, kube_servers, waiting
from support.gc_model import Reference, Thing, World

HOLD = "kiln.test/hold"
API_VERSIONS = {
    "ConfigMap": "v1",
    "Secret": "v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "Unserved": "unserved.kiln.test/v1",
}
_SETTLE_S = 90.0
"""The real collector takes up new kinds, and forgets old ones, in rounds of half a minute."""


def play(admin: kube_servers.Http, seed: int, namespaces: tuple[str, str]) -> "Graph":
    graph = Graph(admin, random.Random(seed), seed, namespaces)
    try:
        graph.build()
        for _ in range(graph.draw.randint(2, 5)):
            graph.act()
        for thing in sorted(graph.world):
            graph.release(thing)
        graph.check()
    finally:
        graph.remove()
    return graph


class Graph:
    """The objects of one seed."""

    def __init__(
        self, admin: kube_servers.Http, draw: random.Random, seed: int, namespaces: tuple[str, str]
    ) -> None:
        self.draw = draw
        self.world: World = frozenset()
        self.story = [f"seed {seed}"]
        self._admin = admin
        self._namespaces = namespaces
        self._made: list[Thing] = []
        self._prefix = f"g{uuid.uuid4().hex[:8]}"

    def build(self) -> None:
        """Create the objects, then set their owners one after another."""
        for i in range(self.draw.randint(2, 6)):
            self._create(f"{self._prefix}-{i}")
        self.world = frozenset(self._made)
        for thing in self._made:
            count = self.draw.choice((0, 1, 1, 1, 2, 3))
            references = {r.uid: r for r in (self._reference() for _ in range(count))}
            if references:
                self._set_references(thing, tuple(references.values()))

    def act(self) -> None:
        """Change one existing object."""
        if not self.world:
            return
        thing = self.draw.choice(sorted(self.world))
        act = self.draw.choice((self._delete, self._delete, self._delete, self.release, self._free))
        act(thing)

    def release(self, thing: Thing) -> None:
        """Remove the finalizer that is not the collector's."""
        thing = self._now(thing)
        if thing not in self.world or HOLD not in thing.finalizers:
            return
        kept = [f for f in thing.finalizers if f != HOLD]
        self._patch(thing, {"finalizers": kept or None})
        self._settle(f"release {thing.name}", gc_model.without_finalizer(self.world, thing, HOLD))

    def check(self) -> None:
        """Check that nothing has changed since the last step settled."""
        assert self._observe() == self.world, "\n".join(self.story)

    def remove(self) -> None:
        """Remove all objects, whatever their state."""
        for thing in self._made:
            path = _path(thing)
            self._admin.patch(path, {"metadata": {"finalizers": None, "ownerReferences": None}})
            self._admin.delete(path, propagationPolicy="Background")

    def _create(self, name: str) -> None:
        kind = self.draw.choice(("ConfigMap", "ConfigMap", "Secret", "ClusterRole"))
        namespace = self._namespaces[self.draw.random() < 0.2]
        finalizers = []
        if self.draw.random() < 0.3:
            finalizers.append(HOLD)
        if self.draw.random() < 0.1:
            finalizers.append(self.draw.choice((gc_model.ORPHAN, gc_model.FOREGROUND)))
        thing = Thing(kind, namespace if gc_model.NAMESPACED[kind] else "", name, "")
        body = {
            "apiVersion": API_VERSIONS[kind],
            "kind": kind,
            "metadata": {"name": name, "finalizers": finalizers},
        }
        collection = _path(thing).rpartition("/")[0]
        if self.draw.random() < 0.1:  # the owner of before has the same name and another uid
            self._admin.post(collection, {**body, "metadata": {"name": name}}).ok()
            self._admin.delete(_path(thing)).ok()
        made = self._admin.post(collection, body).ok()
        self._made.append(thing._replace(uid=made["metadata"]["uid"], finalizers=tuple(finalizers)))
        self.story.append(f"create {self._made[-1]}")

    def _reference(self) -> Reference:
        owner = self.draw.choice(self._made)
        found = Reference(owner.kind, owner.name, owner.uid, self.draw.random() < 0.5)
        stranger = str(uuid.UUID(int=self.draw.getrandbits(128)))
        match self.draw.randrange(12):
            case 0:
                return found._replace(uid=stranger)
            case 1:
                return found._replace(name="none")
            case 2:
                other = "Secret" if owner.kind == "ConfigMap" else "ConfigMap"
                return found._replace(kind=other)
            case 3:
                return found._replace(kind="Unserved", uid=stranger)
        return found

    def _set_references(self, thing: Thing, references: tuple[Reference, ...]) -> None:
        thing = self._now(thing)
        self._patch(thing, {"ownerReferences": [_document(r, self.draw) for r in references]})
        changed = thing._replace(references=references)
        self._settle(
            f"owners of {thing.name}: {references}",
            gc_model.replaced(self.world, thing, changed),
        )

    def _delete(self, thing: Thing) -> None:
        policy = self.draw.choice(("Background", "Foreground", "Foreground", "Orphan", None))
        query = {} if policy is None else {"propagationPolicy": policy}
        self._admin.delete(_path(thing), **query).ok()
        self._settle(f"delete {thing.name} {policy}", gc_model.deleted(self.world, thing, policy))

    def _free(self, thing: Thing) -> None:
        """Remove one owner, or make it no longer blocked."""
        if not thing.references:
            return
        at = self.draw.randrange(len(thing.references))
        kept = list(thing.references)
        if self.draw.random() < 0.5:
            del kept[at]
        else:
            kept[at] = kept[at]._replace(blocking=False)
        self._set_references(thing, tuple(kept))

    def _now(self, thing: Thing) -> Thing:
        return next((one for one in self.world if one.uid == thing.uid), thing)

    def _patch(self, thing: Thing, metadata: dict[str, Any]) -> None:
        self._admin.patch(_path(thing), {"metadata": {"uid": thing.uid, **metadata}}).ok()

    def _settle(self, what: str, world: World) -> None:
        self.story.append(what)
        ends = {_comparable(end) for end in gc_model.ends(world)}
        waiting.wait_until(
            lambda: _comparable(self._observe()) in ends,
            what="\n".join([*self.story, "the server settles in one of", *map(_shown, ends)]),
            timeout_s=_SETTLE_S,
        )
        self.world = self._observe()

    def _observe(self) -> World:
        return frozenset(one for one in map(self._read, self._made) if one is not None)

    def _read(self, thing: Thing) -> Thing | None:
        response = self._admin.get(_path(thing))
        if response.status == 404:
            return None
        found = response.ok()["metadata"]
        references = tuple(
            Reference(r["kind"], r["name"], r["uid"], bool(r.get("blockOwnerDeletion")))
            for r in found.get("ownerReferences", ())
        )
        return thing._replace(
            deleting="deletionTimestamp" in found,
            finalizers=tuple(found.get("finalizers", ())),
            references=references,
        )


def _comparable(world: World) -> World:
    """Return the state without what depends on timing: whether a reference in a cycle still
    blocks.
    """
    return frozenset(
        thing._replace(
            finalizers=tuple(sorted(thing.finalizers)),
            references=tuple(sorted(r._replace(blocking=False) for r in thing.references)),
        )
        for thing in world
    )


def _shown(world: World) -> str:
    return "; ".join(map(str, sorted(world))) or "nothing"


def _document(reference: Reference, draw: random.Random) -> dict[str, Any]:
    blocking: dict[str, Any] = {"blockOwnerDeletion": True}
    if not reference.blocking:
        blocking = draw.choice(({}, {"blockOwnerDeletion": False}))
    return {
        "apiVersion": API_VERSIONS[reference.kind],
        "kind": reference.kind,
        "name": reference.name,
        "uid": reference.uid,
        **blocking,
    }


def _path(thing: Thing) -> str:
    plural = {"ConfigMap": "configmaps", "Secret": "secrets", "ClusterRole": "clusterroles"}
    version = API_VERSIONS[thing.kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    middle = f"/namespaces/{thing.namespace}" if thing.namespace else ""
    return f"{root}{middle}/{plural[thing.kind]}/{thing.name}"
