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
    "test_repeated_ensure_starts_the_attempt_once": (
        PEERS,
        "the manager creates nothing; test_manager_cut_off_at_any_step repeats orders",
    ),
    "test_foreign_object_of_the_same_name_fails_the_task_and_stays": (
        PEERS,
        "an attempt is an order on a link, without a name that another client could take",
    ),
    "test_kill_leaves_a_foreign_object_of_the_same_name_alone": (PEERS, "the same"),
    "test_manager_without_the_executor_keeps_its_tasks_waiting": (
        PEERS,
        "no manager has it; test_task_waits_with_a_reason_until_its_api_is_available covers it",
    ),
    "test_object_created_late_by_an_older_manager_is_ended": (
        (*PEERS, "processes"),
        "an order on a link does not outlive the link; the processes have no API to be late at",
    ),
    "test_result_that_is_too_large_fails_the_task": (
        ("external", "pod", "processes"),
        "a user's program gives blobs of any size; Pods have a sidecar for that (test_sidecar)",
    ),
    "test_kill_of_an_attempt_whose_object_was_removed_completes": (
        (*PEERS, "ephemeral"),
        "its process is removed with it, which the dispatcher sees (test_object_deleted_…)",
    ),
    "test_timeout_of_an_attempt_whose_object_was_removed_fails_the_task": (
        (*PEERS, "ephemeral"),
        "the same",
    ),
    "test_program_that_ignores_sigterm_is_gone_when_its_task_is_killed": (
        ("function", "http"),
        "what goes on in a server is not the executor's: the end of its connection is the proof",
    ),
}
"""Tests that mean nothing for a subject, and why."""


def subjects(test: str) -> list[str]:
    """Return the names of the subjects of a test."""
    excepted, _ = NOT_APPLICABLE.get(test, ((), ""))
    return [name for name in SUBJECTS if name not in excepted]
