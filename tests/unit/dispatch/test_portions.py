"""Tasks that need a portion of the data of a SyncSet run on nodes that hold it, only there."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions, views
from support import scripted_calls
from support.scripted_calls import World, spec

NODES = ("a", "b")


def world_of(*, slots: int = 1, **held: set[int]) -> World:
    """A worker on each of two nodes, calls of portion N as template N, of none as template 9."""
    world = World(slots=0)
    world.worker(1, node="a", slots=slots)
    world.worker(2, node="b", slots=slots)
    world.driver()
    for portion in range(4):
        queue = api_task.portion_queue("default", portion)
        world.define(spec(cluster_name=queue), number=portion)
    world.define(spec(), number=9)
    if held:
        hold(world, **held)
    return world


def hold(world: World, **held: set[int]) -> None:
    portions = {node: frozenset(found) for node, found in held.items()}
    world.apply(inputs.SetPortions("ns", "default", portions))


def node_of(world: World, number: int) -> str | None:
    """Where a call is, by its number."""
    worker = world.task(scripted_calls.task_id(number)).worker
    return None if worker is None else worker.node


def test_tasks_go_to_workers_whose_nodes_hold_their_portion() -> None:
    world = world_of(slots=4, a={0, 1}, b={2})
    for portion in (2, 0, 2, 1):
        world.submit(template=portion)
    assert [node_of(world, number) for number in range(1, 5)] == ["b", "a", "b", "a"]


def test_a_task_waits_while_no_node_holds_its_portion() -> None:
    world = world_of(a={0})
    (task,) = world.submit(template=2)
    reason, message = views.explain(world.memory.tasks[task])
    assert reason == reasons.Reason.NO_WORKER
    assert "TaskCluster default is on a node that holds portion 2" in message
    assert views.of_cluster(world.memory.clusters["ns", "default"]).queued == 1
    hold(world, a={0}, b={2})
    assert node_of(world, 1) == "b"


def test_a_task_does_not_wait_behind_one_of_another_portion() -> None:
    world = world_of(a={0}, b={1})
    world.submit(3, template=0)
    (task,) = world.submit(template=1)
    assert node_of(world, 4) == "b"
    assert world.holds(task)


def test_no_more_slots_are_opened_than_tasks_of_a_portion_need() -> None:
    world = world_of(slots=4, a={0}, b={1})
    world.opens = False
    world.submit(template=0)
    world.submit(template=1)
    assert len(world.sent_of(instructions.OpenSlot)) == 2


def test_queued_calls_are_not_moved_to_a_node_without_the_portion() -> None:
    world = world_of(a={0}, b={1})
    for portion in (0, 1):
        (first,) = world.submit(template=portion)
        world.end(first, seconds=0.001)
    world.submit(40, template=0)  # all of them wait in the slot of node a
    assert {len(player.has) for player in world.slots.values()} == {0, 40}
    (other,) = world.submit(template=9)
    world.end(other)
    assert world.sent_of(instructions.TakeBack) == []


def test_a_deleted_cluster_ends_tasks_of_portions_too() -> None:
    world = world_of(a={0})
    (task,) = world.submit(template=3)
    world.apply(inputs.CloseCluster("ns", "default", True))
    assert world.task(task).state is api_task.State.FAILED


@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 9]), min_size=1, max_size=40),
    st.lists(st.tuples(*(st.sets(st.integers(0, 3)) for _ in NODES)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_every_call_ends_and_starts_only_next_to_its_data(
    templates: list[int], holdings: list[tuple[set[int], ...]], slots: int, chance: random.Random
) -> None:
    """Nodes get and lose portions while calls run; in the end each portion is somewhere."""
    world = world_of(slots=slots)
    begun: set[int] = set()
    for held in [*holdings, ({0, 1}, {2, 3})]:
        hold(world, **dict(zip(NODES, held, strict=True)))
        count = 1 + chance.randrange(len(templates))
        for template in templates[:count]:
            world.submit(template=template)
        _check(world, dict(zip(NODES, held, strict=True)), begun)
        for player in list(world.slots.values()):
            for ref in list(player.has):
                world.end(ref.task, seconds=chance.choice([0.001, 0.5]))
                _check(world, dict(zip(NODES, held, strict=True)), begun)
    for _ in range(1000):
        waiting = [ref.task for player in world.slots.values() for ref in player.has]
        if not waiting:
            break
        world.end(waiting[0])
    assert world.memory.tasks == {}


def _check(world: World, held: dict[str, set[int]], begun: set[int]) -> None:
    """What was given to a slot since the last look was given where its data was."""
    for player in world.slots.values():
        worker = world.memory.slots[player.name].worker
        for ref in player.has:
            number = int.from_bytes(ref.task, "big")
            task = world.memory.tasks[ref.task]
            if number not in begun and task.cluster.portion is not None:
                assert task.cluster.portion in held[worker.node]
            begun.add(number)
