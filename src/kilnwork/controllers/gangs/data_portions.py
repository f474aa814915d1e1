"""The portions of sharded data that each worker holds.

No I/O. Used by the modules of gangs and by the SyncSet controller. The shards of a group's
snapshots are divided into as many portions as the group may have workers. Each worker has some
portions, which are written to its Pod when its gate is opened. Its node holds the shards of all
portions of its workers, and tasks of a portion run on any node that holds it. So a new manager
reads from the Pods which node holds which portions. A node keeps its portions: a portion that is
moved to another worker is then on two nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kilnwork.api import meta

ANNOTATION = "kilnwork.dev/portions"
"""Annotation of Pods: numbers of the portions of a worker, separated by commas."""

Places = Mapping[str, Mapping[str, frozenset[int]]]
"""Numbers of portions, by group and then by node."""


class Holder(msgspec.Struct, frozen=True):
    """A worker that holds, or is to hold, portions of the data."""

    name: str
    node: str
    """Node on which the worker runs or will run; "" if undecided."""
    portions: frozenset[int] | None = None
    """Portions in the annotation of the worker's Pod; None before the gate of the Pod is opened."""


def of_pod(metadata: meta.ObjectMeta) -> frozenset[int]:
    """Return the numbers of the portions in a Pod's annotation."""
    text = metadata.annotations.get(ANNOTATION, "")
    return frozenset(int(number) for number in text.split(",") if number.isdecimal())


def format_portions(portions: Iterable[int]) -> str:
    """Format numbers of portions for the annotation of a Pod."""
    return ",".join(map(str, sorted(portions)))


def assign_portions(
    count: int, holders: Sequence[Holder], *, near: Mapping[str, frozenset[int]]
) -> dict[str, frozenset[int]]:
    """Return the portions of each worker of a group, by the worker's name. Each portion gets at
    least one worker, unless there are no workers.

    Workers keep their portions. Unassigned portions are divided equally among the workers without
    portions; if there are no such workers, they go to the workers with the fewest portions. Workers
    that still have none share portions of other workers. `near`: the portions that each node holds
    or fetches, by node; among otherwise equal choices, these are preferred.
    """
    found = {one.name: set(one.portions or ()) for one in holders}
    near_of = {one.name: near.get(one.node, frozenset[int]()) for one in holders}
    new = sorted(one.name for one in holders if one.portions is None)
    owned = set().union(*found.values())
    unassigned = [one for one in range(count) if one not in owned] if holders else []
    each, more = divmod(len(unassigned), len(new)) if new else (0, 0)
    for portion in unassigned:
        if new:
            full = sum(len(found[name]) > each for name in new)
            able = [name for name in new if len(found[name]) < each + (full < more)]
            chosen = min(able, key=lambda name: (portion not in near_of[name], name))
        else:
            chosen = min(found, key=lambda n: (portion not in near_of[n], len(found[n]), n))
        found[chosen].add(portion)
    for name in new:
        if not found[name]:
            found[name] = _take_from_others(
                count, max(1, count // len(holders)), found, near=near_of[name]
            )
    return {name: frozenset(portions) for name, portions in found.items()}


def _take_from_others(
    count: int, size: int, found: Mapping[str, set[int]], *, near: frozenset[int]
) -> set[int]:
    """Choose some portions of other workers for a worker that has none.

    Portions that are near come first, then those that the fewest workers have, then those of the
    busiest workers.
    """
    copies = Counter(portion for portions in found.values() for portion in portions)
    load: dict[int, int] = {}
    for portions in found.values():
        load |= {portion: max(len(portions), load.get(portion, 0)) for portion in portions}

    def rank(portion: int) -> tuple[bool, int, int, int]:
        return portion not in near, copies[portion], -load.get(portion, 0), portion

    return set(sorted(range(count), key=rank)[:size])


def merge(*places: Places) -> dict[str, dict[str, frozenset[int]]]:
    """Return the union of several assignments of portions to nodes."""
    found: dict[str, dict[str, frozenset[int]]] = {}
    for one in places:
        for group, by_node in one.items():
            into = found.setdefault(group, {})
            for node, has in by_node.items():
                into[node] = into.get(node, frozenset()) | has
    return found


def missing_portions(counts: Mapping[str, int], places: Places) -> dict[str, list[int]]:
    """Return the portions of each group that no node holds, without groups of which none is
    missing.
    """
    found = {}
    for group, count in counts.items():
        there = frozenset[int]().union(*places.get(group, {}).values())
        if len(there) < count:
            found[group] = sorted(frozenset(range(count)) - there)
    return found


def held_portions(before: Places, wanted: Places, ready: Mapping[str, bool]) -> Places:
    """Return the portions that each node holds now.

    A node that is `ready` holds all portions that it should hold; another node holds the portions
    that it held `before`. Unknown nodes hold nothing.
    """
    found: dict[str, dict[str, frozenset[int]]] = {}
    for group, by_node in wanted.items():
        was = before.get(group, {})
        now = {n: has if ready[n] else was.get(n) for n, has in by_node.items() if n in ready}
        found[group] = {node: has for node, has in now.items() if has}
    return found
