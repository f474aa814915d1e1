"""On which journal a manager leads: its UUID is in the Lease, and no other journal may be led on.

Used by `in_cluster`. One manager leads at a time by its Lease, but tasks are in a journal: a
second manager with a volume of its own would lead with an empty one, and say of every task that
there is none. The leader records which journal it has; a candidate with another one waits until
it is asked to lead. A backup of a journal is the same journal.
"""

import re

from kilnwork.api import manager, meta
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kube import election

ANNOTATION = "kilnwork.dev/journal"
"""On the Lease: UUID of the journal of the manager that leads, or that led last."""

_SPARE = re.compile(r"kilnwork-manager-[1-9][0-9]*")
"""A Pod that is there only since a user scaled up the StatefulSet of `kiln install`: its new
journal is no first start, whether there is a Lease or it has just been deleted."""

EVENT = "AnotherJournal"
"""Reason of the kube event about the Lease."""


class JournalClaim:
    """Decides by the Lease whether this manager may lead with its journal. `adopt`: lead even if
    the Lease names another journal. `place`: where the journal is, for people; `namespace`: of the
    Lease. `machine`: its host name, that of its Pod in a cluster."""

    def __init__(
        self,
        mine: journal.Identity,
        *,
        place: str,
        namespace: str,
        machine: str = "",
        adopt: bool = False,
    ) -> None:
        self._mine = mine
        self._is_spare = _SPARE.fullmatch(machine) is not None
        self._place = place
        self._namespace = namespace
        self._adopt = adopt
        self._recorded = ""

    @property
    def annotations(self) -> dict[str, str]:
        """What stands in the Lease while it leads, and afterwards."""
        return {ANNOTATION: self._mine.uid}

    def objection(self, lease: meta.JsonObject | None) -> str:
        """Why it must not lead, "" if it may. None: there is no Lease, and what was seen in one
        that was deleted still counts."""
        terms = 0
        if lease is not None:
            self._recorded = (lease["metadata"].get("annotations") or {}).get(ANNOTATION, "")
            terms = election.read(lease).transitions
        if self._adopt or self._recorded == self._mine.uid:
            return ""
        if self._recorded:
            return self._text(f"tasks are in journal {self._recorded}")
        if terms and not self._mine.epoch:  # by a version that recorded nothing
            return self._text(f"managers have led for {terms} terms")
        if self._is_spare and not self._mine.epoch:
            return self._text("the StatefulSet has more replicas than one, whose first one leads")
        return ""

    def _text(self, known: str) -> str:
        kind = "another one" if self._mine.epoch else "a new, empty one"
        name = f"{self._namespace} {manager.LEASE}"
        return (
            f"{known}, and the journal in {self._place} is {kind}, {self._mine.uid}: give this "
            f"manager the volume of that journal, or scale it away; to give the tasks of that "
            f"journal up, `kubectl annotate --overwrite lease -n {name} "
            f"{ANNOTATION}={self._mine.uid}`"
        )
