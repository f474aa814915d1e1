"""Manifests in Furiko's fields and in kilnwork's, each run unchanged on the embedded server.

tests/conformance/test_jobs.py checks that every server accepts them; here their Jobs run and print
the expected text. Manifests that need a missing service or package are only accepted: see
`NOT_HERE`.
"""

import datetime
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support import job_manifests, waiting
from support import up_server as up_support

PATIENCE_S = 60.0
NOT_HERE = {"fields-of-ours", "pipeline", "form-of-the-proposal"}
DATE = str(datetime.datetime.now(datetime.UTC).year)
"""What `date` prints, at least."""

PRINTED = {
    "minimal": [DATE],
    "seconds-and-bounds": [DATE],
    "spread": [DATE],
    "several-expressions": [DATE],
    "context-variables": ["context-variables of default, run-context-variables, "],
    "options-in-a-script": ["order 12 damaged   /"],
    "nearly-every-field": ["Ada in oslo, 1", "Ada in oslo, 2", "Ada in lima, 1", "Ada in lima, 2"],
    "from-config": [DATE],
    "with-options": ["order 4711 damaged   /", "\nsales\nstock\n"],
    "in-the-future": [DATE],
    "independent": ["Ada 0 any", "Ada 1 any", "Ada 2 any"],
    "substitutions-only": [DATE],
}
"""What the Jobs of a manifest print, together, among other things."""

VALUES = {"options-in-a-script": {"order": "12", "notify": True}}
"""Options of those JobConfigs that need some."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("manifests"), slots=4) as made:
        configs = [one for one in job_manifests.all_manifests() if one["kind"] == "JobConfig"]
        made.kiln("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, configs)))
        yield made


def job_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the Job to create: the manifest itself under its name, or one of its JobConfig."""
    title = job_manifests.title(manifest)
    name = f"run-{title}"
    if manifest["kind"] == "Job":
        return {**manifest, "metadata": {**manifest["metadata"], "name": name}}
    spec: dict[str, Any] = {"configName": title}
    if title in VALUES:
        spec["optionValues"] = VALUES[title]
    return {**manifest, "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_all_manifests_are_run_or_listed() -> None:
    assert {job_manifests.title(one) for one in job_manifests.all_manifests()} == {
        *PRINTED,
        *NOT_HERE,
    }


@pytest.mark.parametrize(
    "manifest",
    [one for one in job_manifests.all_manifests() if job_manifests.title(one) in PRINTED],
    ids=job_manifests.title,
)
def test_job_of_a_manifest_prints_the_expected_text(
    server: up_support.UpServer, manifest: dict[str, Any]
) -> None:
    job = job_of(manifest)
    name = job["metadata"]["name"]
    if "startAfter" in job["spec"].get("startPolicy", {}):
        job = wait_and_hasten(server, job)
        name = job["metadata"]["name"]
    server.kiln("apply", "-f", "-", stdin=json.dumps(job))
    waiting.wait_until(
        lambda: phase(server, name) in ("Succeeded", "Failed", "Killed", "AdmissionError"),
        what=f"{name} is over",
        timeout_s=PATIENCE_S,
    )
    status = server.get("jobs", name)["status"]
    assert status["phase"] == "Succeeded", status
    printed = "".join(
        server.kiln("logs", f"{name}-{index}").stdout
        for index in range(status["indexes"]["total"])
        if ran(status, f"{name}-{index}")
    )
    wanted = PRINTED[job_manifests.title(manifest)]
    if len(wanted) > status["indexes"]["succeeded"]:  # the first success was enough
        assert any(text in printed for text in wanted), printed
    else:
        assert all(text in printed for text in wanted), printed


def wait_and_hasten(server: up_support.UpServer, job: dict[str, Any]) -> dict[str, Any]:
    """Check that a Job of the future waits; return one whose time has come."""
    server.kiln("apply", "-f", "-", stdin=json.dumps(job))
    name = job["metadata"]["name"]
    waiting.wait_until(
        lambda: server.get("jobs", name).get("status", {}).get("reason") == "NotYetDue",
        what="it waits",
    )
    assert phase(server, name) == "Queued"
    server.kiln("delete", f"job/{name}")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    policy = {**job["spec"]["startPolicy"], "startAfter": now}
    return {
        **job,
        "metadata": {"name": f"{name}-now"},
        "spec": {**job["spec"], "startPolicy": policy},
    }


def phase(server: up_support.UpServer, name: str) -> str:
    return str(server.get("jobs", name).get("status", {}).get("phase", ""))


def ran(status: dict[str, Any], task: str) -> bool:
    """Return whether a task has succeeded."""
    return any(
        one["name"] == task and one["status"].get("result") == "Succeeded"
        for one in status["tasks"]
    )
