"""The store in memory forgets what is over, oldest first, but nothing that is still looked for."""

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal import memory_store
from kilnwork.dispatch.machine import inputs, instructions, records
from kilnwork.kit import ids

CLUSTER = records.Cluster(("ns", "default"))
TEMPLATE = records.Template(1, CLUSTER, api_task.TaskSpec(call=api_task.Call(function="f")))
ONE = memory_store.OVERHEAD + 1


def a_call(number: int, parent: records.Task | None = None) -> records.Task:
    task = records.Task(
        row=number,
        id=ids.TaskId(number.to_bytes(16, "big")),
        run=1,
        namespace="ns",
        name="",
        cluster=CLUSTER,
        declared=False,
        spec=TEMPLATE.spec,
        template=TEMPLATE,
    )
    if parent is not None:
        task.parent = attempts.AttemptRef(parent.id, 1, 1)
        task.child_key = f"f#{number}"
    return task


def write(kept: memory_store.MemoryStore, *tasks: records.Task) -> None:
    finals = [task for task in tasks if task.state.final]
    committed: list[None] = []
    batch = instructions.Batch(dirty=dict.fromkeys(tasks), finals=finals)
    kept.write(batch, lambda _: committed.append(None))
    assert committed


def ended(task: records.Task) -> records.Task:
    task.state = api_task.State.SUCCESS
    task.result = attempts.Payload(attempts.JSON, b"1")
    return task


def known(kept: memory_store.MemoryStore, tasks: list[records.Task]) -> list[int]:
    found = kept.values("ns", [task.id for task in tasks])
    return [task.row for task in tasks if task.id in found]


def test_oldest_finished_task_is_dropped_first() -> None:
    kept = memory_store.MemoryStore(keep_bytes=3 * ONE)
    going = a_call(100)
    tasks = [a_call(number) for number in range(1, 6)]
    write(kept, going, *tasks)
    for task in tasks:
        write(kept, ended(task))
    assert known(kept, tasks) == [3, 4, 5]
    assert kept.task_row(going.id) is not None


def test_children_are_kept_until_their_parent_has_finished() -> None:
    kept = memory_store.MemoryStore(keep_bytes=ONE - 1)
    parent = a_call(1)
    children = [a_call(number, parent) for number in range(2, 6)]
    write(kept, parent, *children)
    for child in children:
        write(kept, ended(child))
    assert known(kept, children) == [2, 3, 4, 5]
    assert kept.child(parent.id, 1, "f#2") is not None
    write(kept, ended(parent))
    assert known(kept, [parent, *children]) == []
    assert kept.child(parent.id, 1, "f#2") is None


def test_two_results_with_one_key_may_be_dropped_in_any_order() -> None:
    """The older one is kept as child of an unfinished parent; the newer one is dropped first."""
    kept = memory_store.MemoryStore(keep_bytes=ONE - 1)
    parent = a_call(1)
    child, newer = a_call(2, parent), a_call(3)
    write(kept, parent, child, newer)
    for task, finished in ((child, 1.0), (newer, 2.0)):
        batch = instructions.Batch(dirty={ended(task): None}, finals=[task])
        batch.cached.append(("ns", b"key", task.id, finished))
        kept.write(batch, lambda _: None)
    write(kept, ended(parent))
    assert known(kept, [parent, child, newer]) == []
    assert kept.cached_result("ns", b"key") is None


def test_a_key_is_free_again_when_its_call_is_forgotten() -> None:
    kept = memory_store.MemoryStore(keep_bytes=ONE - 1)
    keyed = a_call(1)
    keyed.child_key = "=daily"
    asked = inputs.Lookups("ns", [], [], [(1, "=daily")], set())
    write(kept, keyed)
    assert set(kept.stored_calls(asked)) == {1}
    write(kept, ended(keyed))
    assert kept.stored_calls(asked) == {}
