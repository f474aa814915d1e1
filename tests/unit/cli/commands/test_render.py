"""`kiln render`: the objects of a SyncSet, without a server."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kilnwork.cli import exits
from support import serverless_cli

ROOM = {"requests": {"cpu": "1", "memory": "1Gi"}}
GROUP = {
    "name": "cpu",
    "replicas": 2,
    "template": {"spec": {"containers": [{"name": "worker", "resources": ROOM}]}},
}
SET: dict[str, Any] = {
    "apiVersion": "kilnwork.dev/v1alpha1",
    "kind": "SyncSet",
    "metadata": {"name": "risk"},
    "spec": {
        "resources": {"groups": [GROUP]},
        "flow": {"do": [{"price": {"command": ["true"]}}]},
    },
}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with a SyncSet and an object of another kind."""
    found = tmp_path / "set.yaml"
    found.write_text(yaml.safe_dump_all([CONFIG, SET]))
    return found


def test_only_sync_sets_are_rendered(kiln: serverless_cli.ServerlessCli, file: Path) -> None:
    ended = kiln.run("render", str(file))
    assert (ended.code, ended.err) == (exits.Exit.OK, "")
    assert [one["kind"] for one in yaml.safe_load_all(ended.out)] == ["TaskCluster"]


def test_backend_makes_its_own_objects(kiln: serverless_cli.ServerlessCli, file: Path) -> None:
    ended = kiln.run("render", str(file), "--backend", "volcano", "--image", "mine:1")
    found = list(yaml.safe_load_all(ended.out))
    assert {one["apiVersion"].partition("/")[0] for one in found} == {
        "kilnwork.dev",
        "batch.volcano.sh",
    }
    assert "mine:1" in ended.out


@pytest.mark.parametrize("namespace", ["default", "risk"])
def test_objects_are_in_the_chosen_namespace(
    kiln: serverless_cli.ServerlessCli, file: Path, namespace: str
) -> None:
    ended = kiln.run("render", str(file), "--namespace", namespace)
    found = [one["metadata"]["namespace"] for one in yaml.safe_load_all(ended.out)]
    assert found == [namespace]


def test_file_without_a_set_is_refused(kiln: serverless_cli.ServerlessCli, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    ended = kiln.run("render", str(file))
    assert ended.code == exits.Exit.USAGE
    assert f"{file}: there is no SyncSet" in ended.err


def test_invalid_set_is_rejected_with_file_and_line(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump({**SET, "spec": {**SET["spec"], "resources": {"groups": []}}}))
    ended = kiln.run("render", str(file))
    assert ended.code == exits.Exit.USAGE
    assert str(file) in ended.err


@pytest.mark.parametrize("arguments", [(), ("no/such.yaml",), ("--backend", "slurm", "a.yaml")])
def test_invalid_arguments_are_rejected(
    kiln: serverless_cli.ServerlessCli, arguments: tuple[str, ...]
) -> None:
    assert kiln.run("render", *arguments).code == exits.Exit.USAGE
