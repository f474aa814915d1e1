"""`kiln apply` validates all objects before it sends one, with the messages of the server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kilnwork.cli import exits
from support import in_process_cli, up_server

COMMAND = {"command": ["true"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("up"), slots=1) as made:
        yield made


@pytest.fixture
def kiln(
    server: up_server.UpServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> in_process_cli.Kiln:
    return in_process_cli.kiln_of(server.data, monkeypatch, capfd)


def write_manifests(directory: Path, *objects: dict[str, Any]) -> str:
    path = directory / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def made(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def config(name: str, *, command: str = "true", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"taskTemplate": {"command": [command]}}}
    return made("JobConfig", name, concurrency={"policy": "Forbid"}, template=template, **spec)


def option_with_default(type_: str, value: Any) -> dict[str, Any]:
    field = {type_.lower(): {"default": value}}
    return {"options": [{"type": type_, "name": "x", **field}]}


WRONG = {
    "cron": config("cron", schedule={"cron": {"expression": "61 2 * * *"}}),
    "zone": config("zone", schedule={"cron": {"expression": "0 2 * * *", "timezone": "Europe/X"}}),
    "variable": config("variable", command="${job.nmae}"),
    "default": config("default", option=option_with_default("Int", "three")),
    "number": config("number", successfulJobsHistoryLimit="three"),
    "policy": config("policy") | {"metadata": {"name": "Policy", "labels": {"a": "b c"}}},
    "job": made("Job", "job", template={"taskTemplate": {"command": ["${task.nmae}"]}}),
    "nothing": made("Job", "nothing"),
    "inputs": made("Task", "inputs", **COMMAND, inputs=[{"name": "a"}]),
    "call": made("Task", "call", call={"function": "no function"}),
    "name": made("Task", "Name", **COMMAND),
    "slots": made("TaskCluster", "slots", runtime="EphemeralContainers", slotsPerWorker=500),
    "template": made("TaskCluster", "template", template={"spec": {"containers": "none"}}),
    "claim": made("TaskClaim", "claim"),
}


@pytest.mark.parametrize("name", WRONG)
def test_error_text_equals_that_of_the_server(
    kiln: in_process_cli.Kiln, tmp_path: Path, name: str
) -> None:
    file = write_manifests(tmp_path, WRONG[name])
    ours, servers = kiln("apply", "-f", file), kiln("apply", "-f", file, "--validate=false")
    assert ours.code == servers.code == exits.Exit.FAILED
    first, last = ours.err.splitlines()[:-1], ours.err.splitlines()[-1]
    assert first == servers.err.splitlines()[:-1]
    assert first[0].startswith(f"error: {file}:1: ")
    assert "1 of the objects" in last


def test_no_object_is_applied_if_one_is_invalid(kiln: in_process_cli.Kiln, tmp_path: Path) -> None:
    file = write_manifests(
        tmp_path, config("good"), WRONG["cron"], config("also"), WRONG["variable"]
    )
    done = kiln("apply", "-f", file)
    assert (done.code, done.out) == (exits.Exit.FAILED, "")
    assert "spec.schedule.cron.expression" in done.err
    assert "${job.nmae}" in done.err
    assert "nothing is applied: 2 of the objects are not valid (--validate=false" in done.err
    assert kiln("get", "jobconfig", "good").code == exits.Exit.NOT_FOUND
    assert kiln("get", "jobconfig", "also").code == exits.Exit.NOT_FOUND


def test_change_is_validated_against_the_stored_object(
    kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    job = made("Job", "fixed", template={"taskTemplate": COMMAND}, suspend=True)
    assert kiln("apply", "-f", write_manifests(tmp_path, job)).code == 0
    other = {**job, "spec": {**job["spec"], "template": {"taskTemplate": {"command": ["false"]}}}}
    file = write_manifests(tmp_path, config("beside"), other)
    done = kiln("apply", "-f", file)
    assert (done.code, done.out) == (exits.Exit.FAILED, "")
    assert "spec.template.taskTemplate" in done.err
    assert kiln("get", "jobconfig", "beside").code == exits.Exit.NOT_FOUND
    assert (
        kiln("apply", "-f", write_manifests(tmp_path, job)).out
        == "job.kilnwork.dev/fixed unchanged\n"
    )


def test_unknown_fields_are_dropped_only_if_asked_for(
    kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    file = write_manifests(tmp_path, made("Task", "odd", **COMMAND, comand="x", suspend=True))
    refused = kiln("apply", "-f", file)
    assert refused.code == exits.Exit.FAILED
    assert 'unknown field "spec.comand"' in refused.err
    assert kiln("apply", "-f", file, "--validate=false").code == 0


def test_job_of_a_config_is_checked_before_it_is_sent(
    kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    assert kiln("apply", "-f", write_manifests(tmp_path, config("sound"))).code == 0
    done = kiln("run-job", "sound", "--name", "x" * 300, "--no-interactive")
    assert done.code == exits.Exit.FAILED
    assert 'Job.kilnwork.dev "xxx' in done.err
    assert "metadata.name" in done.err
