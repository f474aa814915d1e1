"""Objects and patches that `kiln apply` refuses without a server."""

from typing import Any

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.cli import validation

NOON, NEVER = "0 12 * * *", "61 2 * * *"


def config(expression: str = NOON, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": kinds.JOB_CONFIGS.api_version,
        "kind": "JobConfig",
        "metadata": {"name": "report", "namespace": "team", **metadata},
        "spec": {
            "schedule": {"cron": {"expression": expression}},
            "concurrency": {"policy": "Forbid"},
            "template": {"spec": {"taskTemplate": {"command": ["true"]}}},
        },
    }


def live(expression: str = NOON) -> dict[str, Any]:
    """Return a JobConfig as a server stores it."""
    facts = {"uid": "u", "resourceVersion": "7", "generation": 1}
    return {**config(expression, **facts), "status": {"state": "Disabled"}}


def schedule(expression: str) -> dict[str, Any]:
    return {"spec": {"schedule": {"cron": {"expression": expression}}}}


def test_invalid_new_object_is_refused() -> None:
    assert validation.find_refusal(kinds.JOB_CONFIGS, config()) is None
    said = validation.find_refusal(kinds.JOB_CONFIGS, config(NEVER))
    start = (
        'JobConfig.kilnwork.dev "report" is invalid: '
        'spec.schedule.cron.expression: Invalid value: "61 2 * * *": '
    )
    assert said is not None
    assert said.startswith(start)


def test_all_problems_are_reported_together() -> None:
    given = config(NEVER, name="Report", labels={"a": "b c"})
    given["spec"]["template"]["spec"]["taskTemplate"]["command"] = ["${job.nmae}"]
    said = validation.find_refusal(kinds.JOB_CONFIGS, given) or ""
    for field in ("metadata.name", "metadata.labels", "cron.expression", "taskTemplate.command"):
        assert field in said


def test_generated_name_is_valid() -> None:
    def job(prefix: str) -> dict[str, Any]:
        return {"metadata": {"generateName": prefix}, "spec": {"configName": "report"}}

    assert validation.find_refusal(kinds.JOBS, job("report-")) is None
    assert "metadata.generateName" in (validation.find_refusal(kinds.JOBS, job("Report-")) or "")


@pytest.mark.parametrize(
    ("before", "patch", "refused"),
    [
        (NOON, schedule("0 13 * * *"), False),
        (NOON, schedule(NEVER), True),
        (NEVER, {"metadata": {"labels": {"a": "b"}}}, False),
        (NEVER, {"spec": {"schedule": {"disabled": True}}}, False),
        (NEVER, schedule("62 2 * * *"), True),
        (NEVER, schedule(NOON), False),
        (NOON, {"metadata": {"uid": "another", "generation": 9}}, False),
    ],
)
def test_patch_may_keep_existing_problems(
    before: str,
    patch: dict[str, Any],
    refused: bool,  # noqa: FBT001
) -> None:
    said = validation.find_refusal_of_patch(kinds.JOB_CONFIGS, live(before), patch)
    assert (said is not None) == refused


def test_patch_of_an_immutable_field_is_refused() -> None:
    job = {
        "metadata": {"name": "one", "namespace": "team", "uid": "u"},
        "spec": {"template": {"taskTemplate": {"command": ["true"]}}, "optionValues": {"a": 1}},
    }
    patch = {"spec": {"optionValues": {"a": 2}}}
    said = validation.find_refusal_of_patch(kinds.JOBS, job, patch)
    assert said is not None
    assert "spec.optionValues" in said


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (api_resources.CONFIG_MAPS, {"metadata": {"name": "of another kind"}}),
        (kinds.JOB_CONFIGS, {**config(NEVER), "newer": {"field": 1}}),
        (kinds.JOB_CONFIGS, config(NEVER, labels=["no map"])),
    ],
)
def test_other_problems_are_left_to_the_server(
    kind: api_resources.Resource, given: dict[str, Any]
) -> None:
    assert validation.find_refusal(kind, given) is None
