"""Which kind a word means."""

from typing import Any

import pytest

from kilnwork.api import kinds as api_kinds
from kilnwork.api import resource
from kilnwork.cli import errors, kinds


class Discovery:
    """A server that serves one more kind."""

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
async def test_every_name_of_a_kind_means_it(word: str) -> None:
    discovery = Discovery()
    assert await kinds.Kinds(discovery).find(word) == (api_kinds.TASKS,)
    assert discovery.asked == []


@pytest.mark.parametrize("word", ["all", "kiln"])
async def test_a_category_means_all_our_kinds(word: str) -> None:
    assert await kinds.Kinds(Discovery()).find(word) == api_kinds.OURS


async def test_jobs_are_ours_although_kubernetes_has_some() -> None:
    assert await kinds.Kinds(Discovery()).find("jobs") == (api_kinds.JOBS,)


async def test_unknown_words_are_discovered_once() -> None:
    discovery = Discovery()
    found = kinds.Kinds(discovery)
    assert (await found.find("cronjobs"))[0].api_version == "batch/v1"
    assert (await found.of("batch/v1", "CronJob")).plural == "cronjobs"
    with pytest.raises(errors.Unusable, match="knows no kind 'nonsense'"):
        await found.find("nonsense")
    assert discovery.asked == ["/apis", "/api/v1", "/apis/batch/v1"]


@pytest.mark.parametrize("word", ["foo/x", "foo/bar/x"])
def test_a_kind_that_commands_about_tasks_do_not_know_is_named(word: str) -> None:
    assert "'foo' is not a kind" in kinds.unknown_kind(word)


@pytest.mark.parametrize("word", ["x", "task/x", "Job/x", "File/x", "pod/x"])
def test_a_known_kind_is_not_refused(word: str) -> None:
    assert kinds.unknown_kind(word) == ""


async def test_the_wrong_version_is_told_the_right_one() -> None:
    with pytest.raises(errors.Unusable, match=r"serves Task as kilnwork\.dev/v1alpha1"):
        await kinds.Kinds(Discovery()).of("kilnwork.dev/v1", "Task")


async def test_references() -> None:
    found = kinds.Kinds(Discovery())
    assert await found.refs(["task", "a", "b"]) == [
        kinds.Ref(api_kinds.TASKS, "a"),
        kinds.Ref(api_kinds.TASKS, "b"),
    ]
    assert await found.refs(["tasks,ktc"]) == [
        kinds.Ref(api_kinds.TASKS, None),
        kinds.Ref(api_kinds.TASK_CLUSTERS, None),
    ]
    assert await found.refs(["task/a", "pod/b"]) == [
        kinds.Ref(api_kinds.TASKS, "a"),
        kinds.Ref(resource.PODS, "b"),
    ]
    with pytest.raises(errors.Unusable, match="KIND/NAME"):
        await found.refs(["task/a", "b"])


@pytest.mark.parametrize(
    "word", ["a", "task/a", "tasks/a", "task.kilnwork.dev/a", "Task/a", "ktask/a"]
)
def test_a_task_by_any_of_its_names(word: str) -> None:
    assert kinds.task_name(word) == "a"


def test_what_is_no_kind_is_part_of_a_spawned_tasks_name() -> None:
    assert kinds.task_name("left/right") == "left/right"
    with pytest.raises(errors.Unusable, match="`kubectl logs` shows what a Pod printed"):
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
def test_what_is_no_task_is_told_what_to_do_with_it(word: str, instead: str) -> None:
    with pytest.raises(errors.Unusable, match=f"^{word} is not a task: .*`{instead}"):
        kinds.task_name(word)
