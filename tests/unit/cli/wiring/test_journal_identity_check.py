"""Journals with which a candidate may lead, according to the Lease."""

from typing import Any

from kilnwork.cli.wiring import journal_identity_check
from kilnwork.dispatch.journal.sqlite import journal

USED, NEW = journal.Identity("used", 4), journal.Identity("new", 0)


def lease(recorded: str = "", *, transitions: int = 3) -> dict[str, Any]:
    annotations = {journal_identity_check.ANNOTATION: recorded} if recorded else {}
    return {"metadata": {"annotations": annotations}, "spec": {"leaseTransitions": transitions}}


def claim(mine: journal.Identity, *, adopt: bool = False) -> journal_identity_check.JournalClaim:
    return journal_identity_check.JournalClaim(mine, place="/data", namespace="ns", adopt=adopt)


def test_first_manager_leads() -> None:
    assert claim(NEW).objection(None) == ""
    assert claim(NEW).objection(lease(transitions=0)) == ""


def test_recorded_journal_leads_and_another_does_not() -> None:
    assert claim(USED).objection(lease("used")) == ""
    said = claim(NEW).objection(lease("used"))
    assert "tasks are in journal used" in said
    assert "the journal in /data is a new, empty one, new" in said
    assert "annotate --overwrite lease -n ns kilnwork-manager kilnwork.dev/journal=new" in said
    assert "another one, used" in claim(USED).objection(lease("older"))


def test_suggested_command_lets_the_manager_lead() -> None:
    candidate = claim(NEW)
    assert candidate.objection(lease("used"))
    assert candidate.objection(lease("new")) == ""
    assert claim(NEW, adopt=True).objection(lease("used")) == ""


def test_unrecorded_lease_lets_only_a_used_journal_lead() -> None:
    assert claim(USED).objection(lease()) == ""
    assert "managers have led for 3 terms" in claim(NEW).objection(lease())


def test_deleted_lease_still_counts() -> None:
    candidate = claim(NEW)
    assert candidate.objection(lease("used"))
    assert "tasks are in journal used" in candidate.objection(None)
    restarted = claim(USED)
    assert restarted.objection(None) == ""


def test_extra_replica_never_leads_with_a_new_journal() -> None:
    def objection(machine: str, mine: journal.Identity, *, adopt: bool = False) -> str:
        made = journal_identity_check.JournalClaim(
            mine, place="/data", namespace="ns", machine=machine, adopt=adopt
        )
        return made.objection(None)

    assert "more replicas than one" in objection("kilnwork-manager-1", NEW)
    assert objection("kilnwork-manager-0", NEW) == ""
    assert objection("laptop-1", NEW) == ""
    assert objection("kilnwork-manager-1", USED) == ""
    assert objection("kilnwork-manager-1", NEW, adopt=True) == ""
