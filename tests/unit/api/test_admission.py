"""What the embedded API server says of objects: problems, warnings, rights and samples."""

from typing import Any

import pytest

from kilnwork.api import admission
from support import job_manifests

JUDGES = {"Job": admission.validate_job, "JobConfig": admission.validate_job_config}


@pytest.mark.parametrize("manifest", job_manifests.all_manifests(), ids=job_manifests.title)
def test_manifest_is_accepted(manifest: dict[str, Any]) -> None:
    assert JUDGES[manifest["kind"]](manifest) == []


CLAIM: dict[str, Any] = {"spec": {"executor": "gpu"}, "status": {}}


def claim(phase: str, outcome: dict[str, Any] | None = None) -> dict[str, Any]:
    status = {"phase": phase} if outcome is None else {"phase": phase, "outcome": outcome}
    return {**CLAIM, "status": status}


DONE = {"state": "Succeeded"}


@pytest.mark.parametrize(
    ("phase", "before", "after", "fields"),
    [
        ("Claimed", None, DONE, []),
        ("Killing", None, {"state": "Killed"}, []),
        ("Claimed", DONE, DONE, []),
        ("Claimed", None, {"state": "Killed"}, ["status.outcome.state"]),
        ("Waiting", None, DONE, ["status.outcome"]),
        ("Claimed", DONE, {"state": "Failed"}, ["status.outcome"]),
        ("Claimed", DONE, None, ["status.outcome"]),
        ("Claimed", None, {"state": "Failed", "reason": "DiskFull"}, []),
        ("Claimed", None, {"state": "Failed", "reason": "WorkerLost"}, ["status.outcome.reason"]),
    ],
)
def test_an_outcome_is_written_once_and_only_of_a_claimed_task(
    phase: str, before: dict[str, Any] | None, after: dict[str, Any] | None, fields: list[str]
) -> None:
    found = admission.validate_task_claim_status(claim(phase, before), claim(phase, after))
    assert [field for field, _ in found] == fields


def test_the_spec_of_a_claim_and_the_data_of_a_task_object_cannot_change() -> None:
    other = {"spec": {"executor": "cpu"}}
    assert admission.validate_task_claim_update(CLAIM, CLAIM) == []
    assert [at for at, _ in admission.validate_task_claim_update(CLAIM, other)] == ["spec"]
    assert admission.validate_task_object_update({"data": 1}, {"data": 1}) == []
    assert [at for at, _ in admission.validate_task_object_update({"data": 1}, {})] == ["data"]


def test_writing_a_claim_requires_use_of_its_executor() -> None:
    assert admission.task_claim_right(CLAIM) == ("executors/external", "gpu")


@pytest.mark.parametrize(
    ("before", "after", "is_warned"),
    [
        ({"run": 1, "command": ["a"]}, {"run": 1, "command": ["b"]}, True),
        ({"run": 1, "command": ["a"]}, {"run": 2, "command": ["b"]}, False),
        ({"run": 1, "command": ["a"]}, {"run": 1, "command": ["a"]}, False),
        ({"run": 1, "priority": 1}, {"run": 1, "priority": 2}, False),
    ],
)
def test_changed_spec_without_a_new_run_gives_a_warning(
    before: dict[str, Any],
    after: dict[str, Any],
    is_warned: bool,  # noqa: FBT001
) -> None:
    warnings = list(admission.warn_of_task({"spec": after}, {"spec": before}))
    assert (admission.RUN_UNCHANGED in warnings) is is_warned


def test_template_beside_a_config_gives_a_warning_at_creation() -> None:
    job = {"spec": {"configName": "report", "template": {"taskTemplate": {"command": ["true"]}}}}
    assert any("JobConfig report" in text for text in admission.warn_of_job(job, None))
    assert list(admission.warn_of_job(job, job)) == []


def test_problem_not_covered_by_the_schema_is_reported_with_its_field() -> None:
    found = admission.validate_job(
        {"metadata": {"name": "a"}, "spec": {"ttlSecondsAfterFinished": "x"}}
    )
    assert [field for field, _ in found] == ["spec.ttlSecondsAfterFinished"]


@pytest.mark.parametrize(
    ("spec", "is_sampled"),
    [
        ({"command": ["true"]}, False),
        ({"inputs": [{"name": "a", "value": 1}]}, False),
        ({}, True),
    ],
)
def test_only_object_tasks_without_inputs_have_a_sample(
    spec: dict[str, Any],
    is_sampled: bool,  # noqa: FBT001
) -> None:
    if "command" not in spec:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap"}
        result = {"successCondition": ".data"}
        spec = {**spec, "customResource": {"manifest": manifest, "result": result}}
    task = {"metadata": {"name": "a", "namespace": "default"}, "spec": spec}
    assert (admission.sample_of_task(task) is not None) is is_sampled
