"""Lookup of the kind that a word names."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import errors, kinds


class Discovery:
    """Server that serves one more kind."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get_json(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if path == "/apis":
            return {"groups": [{"preferredVersion": {"groupVersion": "batch/v1"}}]}
        if path == "/api/v1":
            return {"groupVersion": "v1", "resources": []}
        found = {"name": "cronjobs", "singularName": "cronjob", "kind": "CronJob"}
        listed = [{**found, "namespaced": True}, {**found, "name": "cronjobs/status"}]
        return {"groupVersion": "batch/v1", "resources": listed}


@pytest.mark.parametrize(
    "word", ["task", "tasks", "Task", "ktask", "tasks.kilnwork.dev", "task.kilnwork.dev"]
)
async def test_every_name_of_a_kind_is_found(word: str) -> None:
    discovery = Discovery()
    assert await kinds.Kinds(discovery).find(word) == (api_kinds.TASKS,)
    assert discovery.asked == []


@pytest.mark.parametrize("word", ["all", "kiln"])
async def test_category_means_all_our_kinds(word: str) -> None:
    assert await kinds.Kinds(Discovery()).find(word) == api_kinds.OURS


async def test_jobs_means_the_kilnwork_kind() -> None:
    assert await kinds.Kinds(Discovery()).find("jobs") == (api_kinds.JOBS,)


async def test_unknown_words_are_discovered_once() -> None:
    discovery = Discovery()
    found = kinds.Kinds(discovery)
    assert (await found.find("cronjobs"))[0].api_version == "batch/v1"
    assert (await found.of("batch/v1", "CronJob")).plural == "cronjobs"
    with pytest.raises(errors.InvalidInput, match="knows no kind 'nonsense'"):
        await found.find("nonsense")
    assert discovery.asked == ["/apis", "/api/v1", "/apis/batch/v1"]


@pytest.mark.parametrize("word", ["foo/x", "foo/bar/x"])
def test_unknown_kind_before_a_task_name_is_explained(word: str) -> None:
    assert "'foo' is not a kind" in kinds.unknown_kind(word)


@pytest.mark.parametrize("word", ["x", "task/x", "Job/x", "File/x", "pod/x"])
def test_known_kind_is_not_refused(word: str) -> None:
    assert kinds.unknown_kind(word) == ""


async def test_wrong_version_error_names_the_right_one() -> None:
    with pytest.raises(errors.InvalidInput, match=r"serves Task as kilnwork\.dev/v1alpha1"):
        await kinds.Kinds(Discovery()).of("kilnwork.dev/v1", "Task")


async def test_words_become_references() -> None:
    found = kinds.Kinds(Discovery())
    assert await found.refs(["task", "a", "b"]) == [
        kinds.ObjectRef(api_kinds.TASKS, "a"),
        kinds.ObjectRef(api_kinds.TASKS, "b"),
    ]
    assert await found.refs(["tasks,ktc"]) == [
        kinds.ObjectRef(api_kinds.TASKS, None),
        kinds.ObjectRef(api_kinds.TASK_CLUSTERS, None),
    ]
    assert await found.refs(["task/a", "pod/b"]) == [
        kinds.ObjectRef(api_kinds.TASKS, "a"),
        kinds.ObjectRef(api_resources.PODS, "b"),
    ]
    with pytest.raises(errors.InvalidInput, match="KIND/NAME"):
        await found.refs(["task/a", "b"])


@pytest.mark.parametrize(
    "word", ["a", "task/a", "tasks/a", "task.kilnwork.dev/a", "Task/a", "ktask/a"]
)
def test_task_name_accepts_every_kind_name(word: str) -> None:
    assert kinds.task_name(word) == "a"


def test_unknown_prefix_is_part_of_a_spawned_tasks_name() -> None:
    assert kinds.task_name("left/right") == "left/right"
    with pytest.raises(errors.InvalidInput, match="`kubectl logs` shows what a Pod printed"):
        kinds.task_name("pod/a")


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("taskcluster/default", "kiln scale"),
        ("jobconfigs/nightly", "kiln disable"),
        ("datapond/pond", "kiln data"),
        ("pod/default-0", "kiln delete"),
    ],
)
def test_other_kind_is_rejected_with_the_right_command(word: str, instead: str) -> None:
    with pytest.raises(errors.InvalidInput, match=f"^{word} is not a task: .*`{instead}"):
        kinds.task_name(word)
