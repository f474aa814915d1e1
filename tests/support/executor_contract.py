"""The subjects of the executor contract, and the contract tests that do not apply to one.

Used by `tests/contract/conftest.py`, which runs each test that takes a `world` with every subject.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import (
    ephemeral_subject,
    executor_subjects,
    object_subject,
    peer_subjects,
    workflow_subject,
)

SUBJECTS: dict[str, Callable[[Path], Any]] = {
    "ephemeral": ephemeral_subject.on_containers,
    "external": peer_subjects.on_external,
    "function": peer_subjects.on_functions,
    "http": peer_subjects.on_http,
    "object": object_subject.on_objects,
    "pod": executor_subjects.on_pods,
    "processes": executor_subjects.on_processes,
    "workflow": workflow_subject.on_workflows,
}

PEERS = ("external", "function", "http")
NOT_APPLICABLE: dict[str, tuple[tuple[str, ...], str]] = {
    "test_creating_twice_starts_it_once": (
        PEERS,
        "the manager creates nothing; test_cut_off_at_any_step has orders that come again",
    ),
    "test_a_strangers_object_of_its_name_fails_it_and_stays": (
        PEERS,
        "an attempt is an order on a link and has no name that a stranger could take",
    ),
    "test_a_kill_leaves_a_strangers_object_alone": (PEERS, "the same"),
    "test_a_manager_without_the_executor_keeps_its_tasks_waiting": (
        PEERS,
        "no manager has it; test_without_its_api_it_waits_and_says_so_then_runs is the same story",
    ),
    "test_what_a_late_manager_creates_is_ended": (
        (*PEERS, "processes"),
        "an order on a link does not outlive the link; the processes have no API to be late at",
    ),
    "test_a_result_that_is_too_large_fails_it": (
        ("external", "pod", "processes"),
        "a user's program gives blobs of any size; Pods have a sidecar for that (test_sidecar)",
    ),
    "test_a_kill_of_what_somebody_has_removed_ends": (
        (*PEERS, "ephemeral"),
        "what runs it is removed with it, which the dispatcher sees (test_deleted_by_a_stranger_…)",
    ),
    "test_a_timeout_of_what_somebody_has_removed_ends": ((*PEERS, "ephemeral"), "the same"),
    "test_who_ignores_the_kill_runs_no_more_when_it_is_killed": (
        ("function", "http"),
        "what goes on in a server is not the executor's: the end of its connection is the proof",
    ),
}
"""Tests that mean nothing for a subject, and why."""


def subjects(test: str) -> list[str]:
    """Return the names of the subjects of a test."""
    excepted, _ = NOT_APPLICABLE.get(test, ((), ""))
    return [name for name in SUBJECTS if name not in excepted]
