"""The use of a Task's image, depending on the nodes of the workers."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, pod, task, task_cluster
from kilnwork.controllers.task import own_container_choice, plan
from kilnwork.dispatch import model

NOW = 1_700_000_000.0
LOCAL = own_container_choice.WorkerImage("worker:1", are_local=True)
REMOTE = own_container_choice.WorkerImage("worker:1", are_local=False)


def cluster(**spec: Any) -> task_cluster.TaskCluster:
    metadata = meta.ObjectMeta(name="default", namespace="ns", uid="c")
    return task_cluster.TaskCluster(
        metadata=metadata, spec=msgspec.convert(spec, task_cluster.TaskClusterSpec)
    )


def seen(**spec: Any) -> task.Task:
    uid = "018f3a5e-0000-7000-8000-000000000001"
    metadata = meta.ObjectMeta(name="t", namespace="ns", uid=uid, generation=1)
    return task.Task(metadata=metadata, spec=msgspec.convert(spec, task.TaskSpec))


def decide(of: task.Task, known: own_container_choice.WorkerImage | None, **spec: Any) -> plan.Plan:
    facts = plan.Facts(
        task=of, view=None, cluster=cluster(**spec), workers=known, now=NOW, pending_since=NOW
    )
    return plan.decide(facts)


def worker(container_id: str, **metadata: Any) -> pod.Pod:
    container = {"name": "worker", "image": "worker:1"}
    status = {"name": "worker", "containerID": container_id}
    body = {
        "metadata": {"name": "w-0", **metadata},
        "spec": {"containers": [{"name": "mesh", "image": "m"}, container]},
        "status": {"containerStatuses": [status]},
    }
    return msgspec.convert(body, pod.Pod)


@pytest.mark.parametrize(
    ("pods", "known"),
    [
        ([], None),
        ([worker("")], None),
        ([worker("kiln://a")], LOCAL),
        ([worker("containerd://a")], REMOTE),
        ([worker("kiln://a"), worker("containerd://b")], REMOTE),
        ([worker("kiln://a", deletionTimestamp="2026-01-01T00:00:00Z")], None),
    ],
)
def test_container_ids_tell_whether_images_are_labels(
    pods: list[pod.Pod], known: own_container_choice.WorkerImage | None
) -> None:
    assert own_container_choice.worker_image(pods) == known


COMMAND = {"image": "mine:2", "command": ["run"]}


@pytest.mark.parametrize(
    ("of", "known", "spec"),
    [
        (seen(command=["run"]), REMOTE, {}),
        (seen(image="worker:1", command=["run"]), REMOTE, {}),
        (seen(**COMMAND), LOCAL, {}),
        (seen(**COMMAND), REMOTE, {"runtime": "Agent"}),
        (seen(**COMMAND), None, {"runtime": "Agent"}),
        (seen(**COMMAND), REMOTE, {"runtime": "EphemeralContainers"}),
        (seen(**COMMAND), None, {"runtime": "EphemeralContainers"}),
    ],
)
def test_tasks_without_another_image_run_on_the_worker(
    of: task.Task, known: own_container_choice.WorkerImage | None, spec: dict[str, Any]
) -> None:
    submitted = decide(of, known, **spec).submit
    assert submitted is not None
    assert submitted.spec == of.spec


FROM_SECRET = {"secretKeyRef": {"name": "db", "key": "token"}}


def test_another_image_runs_in_a_pod_of_its_own() -> None:
    of = seen(
        **COMMAND, args=["${task.name}", "$HOME", "$(A)"],
        env=[{"name": "A", "value": "b $$"}, {"name": "B", "valueFrom": FROM_SECRET}],
        retry={"maxAttempts": 3},
    )  # fmt: skip
    template = {"spec": {"tolerations": [{"key": "gpu"}], "containers": [{"name": "worker"}]}}
    submitted = decide(of, REMOTE, serviceAccountName="runner", template=template).submit
    assert submitted is not None
    assert (submitted.spec.executor, submitted.spec.retry.max_attempts) == ("pod", 3)
    assert submitted.spec.pod is not None
    assert submitted.spec.pod.spec == {
        "tolerations": [{"key": "gpu"}],
        "containers": [
            {
                "name": "main",
                "image": "mine:2",
                "command": ["run"],
                "args": ["$${task.name}", "$HOME", "$$(A)"],
                "env": [
                    {"name": "A", "value": "b $$$$"},
                    {"name": "B", "valueFrom": FROM_SECRET},
                ],
            }
        ],
        "enableServiceLinks": False,
        "automountServiceAccountToken": True,
        "serviceAccountName": "runner",
    }


def test_task_waits_until_the_image_of_workers_is_known() -> None:
    decided = decide(seen(**COMMAND), None)
    assert decided.submit is None
    assert decided.status is not None
    assert decided.status.reason == "NoWorker"
    assert decided.again_s == plan.IMAGE_LOOK_S
    assert decide(seen(**COMMAND), None, replicas=0).submit is not None


def test_condition_is_set_where_images_are_labels() -> None:
    found = own_container_choice.ignored_condition(seen(**COMMAND), cluster(), LOCAL)
    assert found is not None
    assert "mine:2" in found.message
    assert own_container_choice.ignored_condition(seen(**COMMAND), cluster(), REMOTE) is None
    assert (
        own_container_choice.ignored_condition(
            seen(image="worker:1", command=["x"]), cluster(), LOCAL
        )
        is None
    )


def test_condition_is_set_with_runtime_agent() -> None:
    found = own_container_choice.ignored_condition(
        seen(**COMMAND), cluster(runtime="Agent"), REMOTE
    )
    assert found is not None
    assert found.message == (
        "spec.image mine:2: TaskCluster default says runtime: Agent, so that its workers run it in "
        "their image"
    )


COMMAND_SPEC = seen(**COMMAND).spec


def of_spawned(known: own_container_choice.WorkerImage | None, **spec: Any) -> model.ImageUse:
    return own_container_choice.use_for_spawned(COMMAND_SPEC, cluster(**spec), known)


def test_spawned_command_gets_its_image_or_a_warning() -> None:
    in_pod = model.ImageUse(own_container_choice.with_pod(COMMAND_SPEC, cluster()))
    assert of_spawned(REMOTE) == in_pod
    assert of_spawned(None) == in_pod
    added = of_spawned(REMOTE, runtime="EphemeralContainers")
    assert added == model.ImageUse(COMMAND_SPEC)
    label = of_spawned(LOCAL)
    assert label.spec == COMMAND_SPEC
    assert "mine:2: images are labels" in label.warning
    same = seen(image="worker:1", command=["run"]).spec
    assert own_container_choice.use_for_spawned(same, cluster(), LOCAL) == model.ImageUse(same)
    assert (
        "no TaskCluster default"
        in own_container_choice.use_for_spawned(COMMAND_SPEC, None, None).refusal
    )
