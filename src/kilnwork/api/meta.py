"""Object metadata as Kubernetes defines it (metav1), as frozen structs.

Used by every kind and by the generic client. Fields that kilnwork does not read are not declared:
they exist only in raw objects, so never write back a whole object that was converted from these
structs.
"""

from typing import Any

import msgspec


class OwnerReference(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """A reference to an owner of an object (metav1.OwnerReference)."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The fields of metav1.ObjectMeta that kilnwork reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def controller(self) -> OwnerReference | None:
        """Return the owner that manages this object, or None if there is none."""
        return next((o for o in self.owner_references if o.controller), None)


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A condition in the status of an object (metav1.Condition)."""

    type: str
    """Type of the condition in CamelCase."""
    status: str
    """Status of the condition: `True`, `False` or `Unknown`."""
    reason: str
    """Reason for the status, as one stable CamelCase word; never empty."""
    message: str = ""
    """Details about the status, for people."""
    last_transition_time: str = ""
    """Time of the last change of the status."""
    observed_generation: int = 0
    """The `metadata.generation` that the condition describes."""


class Partial(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Any object, reduced to its metadata (metav1.PartialObjectMetadata)."""

    metadata: ObjectMeta
    api_version: str = ""
    kind: str = ""


JsonObject = dict[str, Any]
"""A whole object as decoded JSON, as it is created and replaced, and kept for `kiln get -o
yaml`."""


def merge_conditions(
    current: tuple[Condition, ...], new: tuple[Condition, ...], *, now: str
) -> tuple[Condition, ...]:
    """Return the `current` conditions, in which `new` ones replace those of the same type;
    `lastTransitionTime` changes only when the status changes."""
    before = {c.type: c for c in current}
    merged = dict(before)
    for condition in new:
        old = before.get(condition.type)
        unchanged = old is not None and old.status == condition.status
        time = old.last_transition_time if unchanged and old is not None else now
        merged[condition.type] = msgspec.structs.replace(condition, last_transition_time=time)
    return tuple(merged.values())
