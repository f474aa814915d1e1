"""`kiln apply` of a Task that creates an object: the server validates that object first."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kilnwork.api import kinds
from kilnwork.kube import client, config, errors
from support import in_process_cli, object_subject, up_server

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"chapters": {"type": "integer", "minimum": 1}}}
    },
}


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


def task(name: str, kind: str, chapters: Any, **spec: Any) -> dict[str, Any]:
    manifest = {
        "apiVersion": object_subject.BOOKS.api_version,
        "kind": kind,
        "metadata": {"name": "a-book", "labels": {"by": "${task.name}"}},
        "spec": {"chapters": chapters},
    }
    result = {"successCondition": '.status.phase == "Succeeded"'}
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name},
        "spec": {"customResource": {"manifest": manifest, "result": result}, **spec},
    }


async def create_task(server: up_server.UpServer, task: dict[str, Any]) -> None:
    """Create a Task without the command line."""
    loaded = config.load(server.data / "kubeconfig")
    async with client.Client(loaded, user_agent="test") as kube:
        await kube.create(kinds.TASKS, task, "default")


def test_invalid_object_is_refused_before_its_task(
    server: up_server.UpServer, kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        **object_subject.DEFINITION,
    }
    [version] = definition["spec"]["versions"]  # type: ignore[index]
    definition["spec"] = {
        **definition["spec"],  # type: ignore[dict-item]
        "versions": [{**version, "schema": {"openAPIV3Schema": SCHEMA}}],
    }
    assert kiln("apply", "-f", write_manifests(tmp_path, definition)).code == 0

    refused = kiln("apply", "-f", write_manifests(tmp_path, task("none", "Book", 0)))
    assert refused.code == 1
    assert "spec.customResource.manifest: the server refuses the object that it makes" in (
        refused.err
    )
    assert "spec.chapters" in refused.err
    text = r"Invalid value: \"Book\": the server refuses the object that it makes: .*spec\.chapters"
    with pytest.raises(errors.Invalid, match=text):
        asyncio.run(create_task(server, task("none", "Book", 0)))
    assert kiln("get", "task", "none").code != 0

    made = kiln("apply", "-f", write_manifests(tmp_path, task("some", "Book", 3, suspend=True)))
    assert (made.code, made.err) == (0, "")
    given = task("given", "Book", "${task.inputs.n}", inputs=[{"name": "n", "object": "no"}])
    warned = kiln("apply", "-f", write_manifests(tmp_path, given))
    assert warned.code == 0
    assert "with names in the place of its inputs" in warned.err


def test_missing_kind_is_a_warning(kiln: in_process_cli.Kiln, tmp_path: Path) -> None:
    made = kiln("apply", "-f", write_manifests(tmp_path, task("later", "Tome", 3)))
    assert made.code == 0
    assert "its object is not checked: the server serves no kind Tome" in made.err


def test_server_refuses_objects_that_no_attempt_could_create(
    kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    wrong = task("wrong", "${task.name}", 3)
    refused = kiln("apply", "-f", write_manifests(tmp_path, wrong))
    assert refused.code == 1
    assert "spec.customResource.manifest.kind" in refused.err
    assert "may have no variables" in refused.err
