"""Phases, hooks and templates of Jobs."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import job


def template(**given: Any) -> job.JobTemplate:
    return msgspec.convert(given, job.JobTemplate)


@pytest.mark.parametrize(
    ("phase", "final"),
    [("Succeeded", True), ("AdmissionError", True), ("Retrying", False), ("", False), ("X", False)],
)
def test_is_final_for_texts(phase: str, *, final: bool) -> None:
    assert job.is_final(phase) is final


def test_final_phases_of_a_job() -> None:
    assert [phase.final for phase in job.Phase].count(True) == 5
    assert all(phase.final is job.is_final(phase) for phase in job.Phase)


def test_task_of_a_job_has_two_forms() -> None:
    one = template(taskTemplate={"command": ["x"]})
    other = template(task={"template": {"command": ["x"]}})
    assert one.what == other.what
    assert template().what is None


def test_phases_of_a_hook_have_two_forms() -> None:
    run = {"taskTemplate": {"command": ["x"]}}
    one = msgspec.convert({**run, "phases": ["Failed"]}, job.Hook)
    other = msgspec.convert({**run, "on": ["Failed"]}, job.Hook)
    assert one.events == other.events == (job.HookEvent("Failed"),)
