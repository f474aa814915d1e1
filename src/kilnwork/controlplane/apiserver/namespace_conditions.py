"""Status conditions of a Namespace that is being deleted: the objects that delay its removal.

Used by the namespace controller (`namespaces`), which counts the remaining objects. Does no I/O.
Types, reasons and messages are those of k8s.io/kubernetes/pkg/controller/namespace/deletion.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from kilnwork.api import api_resources, meta

_GROUP_VERSIONS = "NamespaceDeletionGroupVersionParsingFailure"
_GOOD = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    _GROUP_VERSIONS: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}
"""Condition → reason and message while there is no problem, in the order of Kubernetes' controller.
The first two never fail here: all kinds are in this process."""


class Remaining:
    """Counts of the objects that remain in a namespace after everything in it was deleted."""

    def __init__(self) -> None:
        self.objects: Counter[str] = Counter()
        """Number of objects by `PLURAL.GROUP`; the core group keeps the dot (`pods.`)."""
        self.finalizers: Counter[str] = Counter()
        """Number of objects by finalizer."""
        self.failures: list[str] = []
        """Messages of failed deletions, one for each kind."""

    def add(self, kind: api_resources.Resource, left: Iterable[meta.ObjectMeta]) -> None:
        """Add the remaining objects of a kind to the counts."""
        for found in left:
            self.objects[f"{kind.plural}.{kind.group}"] += 1
            self.finalizers.update(found.finalizers)


def updated(
    before: Sequence[meta.JsonObject], remaining: Remaining, *, now: str
) -> list[meta.JsonObject]:
    """Return all conditions of a Namespace that is being deleted.

    A transition time is kept while the status of the condition stays the same.
    """
    bad = _bad(remaining)
    known = {condition["type"]: condition for condition in before}
    made = [one for one in before if one["type"] not in _GOOD]
    for name, good in _GOOD.items():
        status = "True" if name in bad else "False"
        old = known.get(name)
        same = old is not None and old.get("status") == status
        reason, message = bad.get(name, good)
        made.append(
            {
                "type": name,
                "status": status,
                "lastTransitionTime": old["lastTransitionTime"] if old and same else now,
                "reason": reason,
                "message": message,
            }
        )
    return made


def _bad(remaining: Remaining) -> dict[str, tuple[str, str]]:
    bad = {}
    if remaining.failures:
        listed = ", ".join(sorted(remaining.failures))
        text = f"Failed to delete all resource types, {len(remaining.failures)} remaining: {listed}"
        bad["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", text)
    if remaining.objects:
        listed = _listed("has", remaining.objects)
        text = f"Some resources are remaining: {listed}"
        bad["NamespaceContentRemaining"] = ("SomeResourcesRemain", text)
    if remaining.finalizers:
        listed = _listed("in", remaining.finalizers)
        text = f"Some content in the namespace has finalizers remaining: {listed}"
        bad["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)
    return bad


def _listed(word: str, counted: Counter[str]) -> str:
    return ", ".join(sorted(f"{name} {word} {n} resource instances" for name, n in counted.items()))
