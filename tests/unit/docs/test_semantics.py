"""docs/explanation/semantics.md names only tests that exist, and the numbers of the code."""

import re

import pytest

from kilnwork.api import attempts, manager_access
from kilnwork.cli.wiring import dispatcher
from kilnwork.dispatch import settings
from kilnwork.dispatch.hub import hub, retention
from kilnwork.dispatch.journal import memory_store
from kilnwork.dispatch.machine import assignment, memory, retries
from kilnwork.sdk import driver_session, exact_json, failures, options, session
from kilnwork.worker import slot_session
from support import pages

PAGE = (pages.DOCS / "explanation" / "semantics.md").read_text()
FLOWING = " ".join(PAGE.split())
SECTIONS = pages.sections(PAGE, 2)
PROOF = pages.table(SECTIONS["Proof"])
HAPPENINGS = pages.table(SECTIONS["Jobs of files"])
IN_A_CLUSTER_S = dispatcher.LeaseTerms.for_absence(manager_access.ABSENCE_S).lease_s
NAMED = [
    pytest.param(*found.split("::"), id=found.partition("::")[2])
    for row in [*PROOF, *HAPPENINGS]
    for found in re.findall(r"[\w/]+\.py::\w+", row.cells[2])
]


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_named_proof_is_a_test(file: str, name: str) -> None:
    source = (pages.ROOT / file).read_text()
    assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE)


def test_every_invariant_has_a_proof() -> None:
    numbers = [int(row.key) for row in PROOF if row.key]
    assert numbers == [*range(1, 10)]
    assert all("::" in row.cells[2] for row in [*PROOF, *HAPPENINGS])


@pytest.mark.parametrize(
    "phrase",
    [
        f"leaves {settings.IDLE_S:g} s after the last",
        f"limited to {retries.MAX_EXCUSED};",
        f"for acceptance, {driver_session.CLOSE_S:g} s at most",
        f"ended less than {slot_session.FLUSH_S * 1000:g} ms before",
        f"its lease ({hub.HubOptions().lease_s:g} s; in a cluster {IN_A_CLUSTER_S:.0f} s)",
        f"remembered ({retention.KEEP_S / 86_400:g} days after",
        f"keeps {memory_store.KEEP_BYTES >> 20} MiB of finished tasks",
        f"After `kill_grace` ({options.KILL_GRACE_S:g} s)",
        f"short (under {assignment.SHORT_CALL_S * 1000:g} ms on average)",
        f"some {assignment.MAX_AHEAD_S * 1000:g} ms of work, at most {assignment.MAX_AHEAD} calls",
        f"{session.UNACCEPTED_CALLS:,} calls or {session.UNACCEPTED_BYTES >> 20} MiB of one",
        f"while {memory.MAX_BACKLOG:,} calls of a cluster",
        f"Up to {attempts.MAX_INLINE_BYTES >> 10} KiB a value is in the journal",
    ],
)
def test_numbers_are_those_of_the_code(phrase: str) -> None:
    assert phrase in FLOWING


def test_other_numbers_are_those_of_the_code() -> None:
    assert assignment.MAX_PROCESSES_PER_SLOT == 8
    assert "up to eight for each slot" in FLOWING
    assert exact_json.MAX_INTEGER == 2**53
    kept = failures.MAX_TRACEBACK + failures.MAX_TEXT + failures.MAX_NOTES + failures.MAX_PICKLED
    assert kept < attempts.MAX_INLINE_BYTES == 64 << 10
    made = options.Options()
    assert (made.retries, made.max_losses) == (0, 3)
