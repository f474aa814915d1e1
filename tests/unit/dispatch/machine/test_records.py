"""Records of memory: counts of children, templates of calls."""

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import records
from support import scripted_calls


def test_unfinished_children_count_as_running() -> None:
    family = records.Family(scripted_calls.task_id(1), 1, declared=False)
    family.total, family.succeeded, family.failed = 10, 3, 2
    counts = family.counts()
    assert (counts.total, counts.running, counts.succeeded, counts.failed) == (10, 5, 3, 2)


@pytest.mark.parametrize(
    ("timeouts", "timed"),
    [
        (api_task.Timeouts(), False),
        (api_task.Timeouts(running_seconds=1), False),
        (api_task.Timeouts(pending_seconds=1), True),
        (api_task.Timeouts(total_seconds=1), True),
    ],
)
def test_templates_know_whether_their_calls_have_deadlines(
    timeouts: api_task.Timeouts, *, timed: bool
) -> None:
    mem = scripted_calls.World(slots=0).memory
    template = mem.template("ns", scripted_calls.spec(timeouts=timeouts, accept_failures=timed))
    assert template.timed is timed
    assert template.accept_failures is timed
    assert template.function == "m:f"


def test_a_reference_names_the_newest_attempt() -> None:
    world, task = scripted_calls.world_with_call()
    ref = world.task(task).ref
    assert (ref.task, ref.run, ref.attempt) == (task, 1, 1)


def test_worker_is_ready_while_connected_and_not_draining() -> None:
    world = scripted_calls.World()
    worker = world.memory.links[1]
    assert [worker.connected, worker.draining, worker.ready] == [True, False, True]
    worker.cluster.draining = frozenset({worker.pod_uid})
    assert [worker.connected, worker.draining, worker.ready] == [True, True, False]
    worker.cluster.draining = frozenset()
    worker.leaving = True
    assert [worker.connected, worker.ready] == [False, False]
    worker.leaving, worker.link = False, 0
    assert not worker.connected


def test_attempts_of_a_worker_are_counted() -> None:
    world, task = scripted_calls.world_with_call()
    worker = world.memory.links[1]
    assert (worker.holding, worker.busy) == (1, 1)
    world.end(task)
    assert (worker.holding, worker.busy) == (0, 0)


def test_workers_of_a_queue_have_its_labels_or_its_portion() -> None:
    world = scripted_calls.World()
    worker, other = world.memory.links[1], world.worker(2, node="n2")
    base = worker.cluster
    assert list(base.eligible) == [worker, other]
    labelled, portion = records.Cluster(("ns", "a")), records.Cluster(("ns", "b"))
    labelled.base = portion.base = base
    labelled.required = {"gpu": "yes"}
    worker.labels = {"gpu": "yes", "zone": "a"}
    assert list(labelled.eligible) == [worker]
    portion.portion, base.portions = 3, {"n2": frozenset({3})}
    assert list(portion.eligible) == [other]


def test_task_is_held_until_its_attempt_has_ended() -> None:
    world, task = scripted_calls.world_with_call()
    record = world.task(task)
    held = [record.held]
    world.started(task)
    held.append(record.held)
    world.end(task)
    assert [*held, record.held] == [True, True, False]


def test_tasks_of_controllers_and_jobs_are_followed() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    followed = [record.followed]
    record.shown = True
    followed.append(record.followed)
    record.shown, record.declared = False, True
    assert [*followed, record.followed] == [False, True, True]


def test_inputs_of_a_task_without_a_function_are_its_arguments() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    before = (record.has_template_spec, record.input_document)
    record.spec = api_task.TaskSpec(command=("true",))
    after = (record.has_template_spec, record.input_document)
    assert (before, after) == ((True, None), (False, scripted_calls.ARGUMENTS.data))
    record.arguments, record.inputs = None, b"{}"
    assert record.input_document == b"{}"
