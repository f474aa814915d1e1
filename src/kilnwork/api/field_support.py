"""The effects of fields (honoured, without effect, refused), and the types of their tables.

`kind_field_effects` has the rows of our kinds, the local node those of Pods. The API server
generates warnings from them (`Warning: 299`), nodes write conditions and refuse Pods by them,
`cli.field_effects_reference` generates docs/reference/fields.md, and a test writes every field once
and checks the effect in its row. No I/O: facts about one object.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import meta


class Effect(enum.StrEnum):
    """The effect of an accepted field. The value is the word used in the docs."""

    HONOURED = "honoured"
    CHECKED = "checked"
    """The node honours the field if it can; otherwise the container waits, with the reason."""
    SCHEDULED = "by the scheduler"
    """The scheduler of the cluster honours the field, before a node is chosen."""
    DEFAULT = "no effect"
    """Without effect and without warning: an API server fills the field in or requires it."""
    IGNORED = "no effect, warning"
    REFUSED = "refused by the node"
    """The Pod fails with reason UnsupportedPod; its writer has been warned."""
    INVALID = "refused"
    """The API server refuses the write."""


class Side(enum.StrEnum):
    """The side that handles an object: `kiln up`, or kilnwork in another Kubernetes cluster."""

    EMBEDDED = "kiln up"
    """The API server, scheduler and node of `kiln up`."""
    CLUSTER = "elsewhere"
    """`kiln node` for Pods, `kiln manager` for our kinds."""


class Row(msgspec.Struct, frozen=True):
    """Row of a field table: the effect of one field on each side."""

    path: str
    """Path such as `spec.containers[].image`; `[]` steps into a list."""
    embedded: Effect
    cluster: Effect
    reason: str = ""
    whole: bool = False
    """Whether the row applies to everything below the field, or only to the field itself."""
    unless: tuple[Any, ...] = (False, 0)
    """Values that only request the default."""

    def effect(self, side: Side) -> Effect:
        """Return the effect of the field on a side."""
        return self.embedded if side == Side.EMBEDDED else self.cluster


class Finding(NamedTuple):
    """A field of an object that does not have the effect that its writer may expect."""

    path: str
    value: Any
    effect: Effect
    reason: str


Table = Mapping[str, Row]
"""Rows by path."""


def table(rows: Sequence[Row]) -> Table:
    """Return the rows of a field table by path. Raises ValueError for a duplicate path."""
    found = {row.path: row for row in rows}
    if len(found) != len(rows):
        paths = [row.path for row in rows]
        raise ValueError(
            f"rows are there twice: {sorted({p for p in paths if paths.count(p) > 1})}"
        )
    return found


def row_for(rows: Table, path: str) -> Row | None:
    """Return the row of a field, or of a parent that applies to everything below; None if there
    is none."""
    if path in rows:
        return rows[path]
    above = path
    while above:
        above = above.removesuffix("[]") if above.endswith("[]") else above.rpartition(".")[0]
        row = rows.get(above)
        if row is not None and row.whole:
            return row
    return None


def findings(rows: Table, value: Any, side: Side, *, at: str = "") -> Iterator[Finding]:
    """Yield the fields of an object that are ignored or refused on a side, in the order of the
    object.

    `value`: the object as JSON, or its part at the path `at`.
    """
    yield from _findings(rows, value, side, (at, at))


def _findings(rows: Table, value: Any, side: Side, at: tuple[str, str]) -> Iterator[Finding]:
    """Yield the findings below `at`: the path with positions in lists, and the path as in the
    table."""
    if value is None or value in ("", [], {}):
        return
    shown, path = at
    row = rows.get(path)
    if row is not None and row.effect(side) in (Effect.IGNORED, Effect.REFUSED):
        if value not in row.unless:
            yield Finding(shown, value, row.effect(side), row.reason)
        return
    if row is not None and row.whole:
        return
    if isinstance(value, dict):
        for name, child in value.items():
            below = (f"{shown}.{name}", f"{path}.{name}") if path else (name, name)
            yield from _findings(rows, child, side, below)
    elif isinstance(value, (list, tuple)):
        for position, child in enumerate(value):
            yield from _findings(rows, child, side, (f"{shown}[{position}]", f"{path}[]"))


def new_sentences(
    find: Callable[[meta.JsonObject], Iterator[Finding]],
    new: meta.JsonObject,
    old: meta.JsonObject | None,
) -> Iterator[str]:
    """Yield the sentences about a new object; for an update, only those that the old object did
    not have."""
    before = set() if old is None else set(map(describe_finding, find(old)))
    yield from (text for text in map(describe_finding, find(new)) if text not in before)


def describe_finding(found: Finding) -> str:
    """Return a finding as a sentence: `spec.dnsPolicy: has no effect here: names are resolved as
    on the machine`."""
    effect = (
        "refused by nodes of kilnwork" if found.effect == Effect.REFUSED else "has no effect here"
    )
    return f"{found.path}: {effect}: {found.reason}"
