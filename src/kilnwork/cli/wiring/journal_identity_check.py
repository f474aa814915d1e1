"""Check that a manager leads with the right journal, whose UUID is in the Lease.

Used by `in_cluster_server`. The Lease makes sure that one manager leads at a time, but tasks are in
a journal: a second manager with a volume of its own would lead with an empty journal and report
every task as missing. The leader records its journal; a candidate with another one waits unless it
is started with `--adopt`. A backup of a journal has the same UUID.
"""

import re

from kilnwork.api import manager_access, meta
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kube import election

ANNOTATION = "kilnwork.dev/journal"
"""Annotation of the Lease: UUID of the journal of the current or last leader."""

_SPARE = re.compile(r"kilnwork-manager-[1-9][0-9]*")
"""Names of additional Pods, which exist only if a user scales up the StatefulSet of `kiln install`.
Such a Pod has a new, empty journal, and must not lead with it even if there is no Lease."""

EVENT = "AnotherJournal"
"""Reason of the kube event about the Lease."""


class JournalClaim:
    """Claim of this manager to lead with its journal, checked against the Lease.

    `adopt`: lead even if the Lease names another journal. `place`: the location of the journal, for
    people. `namespace`: the namespace of the Lease. `machine`: the manager's host name, that of its
    Pod in a cluster.
    """

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
        """Return the annotations that the Lease gets when this manager leads, and keeps
        afterwards.
        """
        return {ANNOTATION: self._mine.uid}

    def objection(self, lease: meta.JsonObject | None) -> str:
        """Return the reason why this manager must not lead, or "".

        `lease`: None if there is no Lease; then the last Lease that was seen still counts.
        """
        terms = 0
        if lease is not None:
            self._recorded = (lease["metadata"].get("annotations") or {}).get(ANNOTATION, "")
            terms = election.read(lease).transitions
        if self._adopt or self._recorded == self._mine.uid:
            return ""
        if self._recorded:
            return self._text(f"tasks are in journal {self._recorded}")
        if terms and not self._mine.epoch:  # led by a version that did not record its journal
            return self._text(f"managers have led for {terms} terms")
        if self._is_spare and not self._mine.epoch:
            return self._text("the StatefulSet has more replicas than one, whose first one leads")
        return ""

    def _text(self, known: str) -> str:
        kind = "another one" if self._mine.epoch else "a new, empty one"
        name = f"{self._namespace} {manager_access.LEASE}"
        return (
            f"{known}, and the journal in {self._place} is {kind}, {self._mine.uid}: give this "
            f"manager the volume of that journal, or scale it away; to give the tasks of that "
            f"journal up, `kubectl annotate --overwrite lease -n {name} "
            f"{ANNOTATION}={self._mine.uid}`"
        )
