"""Who is next."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kilnwork.dispatch.machine import task_queue


@dataclass(eq=False)
class Waiting:
    number: int
    priority: int = 0
    source: bytes = b""
    ticket: int | None = None
    template: object = "a call"


def filled(*priorities: int) -> tuple[task_queue.Queue[Waiting], list[Waiting]]:
    queue: task_queue.Queue[Waiting] = task_queue.Queue()
    items = [Waiting(number, priority) for number, priority in enumerate(priorities)]
    for item in items:
        queue.push(item, priority=item.priority)
    return queue, items


@given(st.lists(st.integers(-3, 3)), st.data())
def test_order_is_priority_then_first_come(priorities: list[int], data: st.DataObject) -> None:
    queue, items = filled(*priorities)
    gone = {item.number for item in items if data.draw(st.booleans())}
    for number in gone:
        queue.remove(items[number])
        queue.remove(items[number])
    wanted = sorted(
        (item for item in items if item.number not in gone),
        key=lambda item: (-item.priority, item.number),
    )
    assert len(queue) == len(wanted)
    got = []
    while (item := queue.pop()) is not None:
        got.append(item)
    assert got == wanted
    assert len(queue) == 0


def test_item_taken_back_is_first() -> None:
    queue, _ = filled(0, 0)
    back = Waiting(9)
    queue.push_front(back, priority=0)
    assert queue.pop() is back


def test_item_that_left_and_returned_is_popped_once() -> None:
    queue, items = filled(0, 0)
    queue.remove(items[0])
    queue.push(items[0], priority=0)
    assert [queue.pop(), queue.pop(), queue.pop()] == [items[1], items[0], None]


def test_number_of_items_ahead() -> None:
    queue, items = filled(0, 5, 0, -1)
    ahead = [queue.ahead(item, priority=item.priority) for item in items]
    assert ahead == [1, 0, 2, 3]


def drained(queue: task_queue.Queue[Waiting]) -> list[Waiting]:
    got = []
    while (item := queue.pop()) is not None:
        got.append(item)
    return got


def test_sources_take_turns_within_one_priority() -> None:
    queue: task_queue.Queue[Waiting] = task_queue.Queue()
    many = [Waiting(number, source=b"many") for number in range(4)]
    few = [Waiting(number, source=b"few") for number in range(10, 12)]
    for item in (*many, *few):
        queue.push(item, priority=0)
    assert [item.number for item in drained(queue)] == [0, 10, 1, 11, 2, 3]


def test_priority_goes_before_turns() -> None:
    queue: task_queue.Queue[Waiting] = task_queue.Queue()
    for number in range(3):
        queue.push(Waiting(number, source=b"a"), priority=0)
    queue.push(Waiting(9, source=b"b"), priority=1)
    queue.push(Waiting(10, source=b"a"), priority=1)
    assert [item.number for item in drained(queue)] == [9, 10, 0, 1, 2]


def test_item_taken_back_is_before_other_sources() -> None:
    queue: task_queue.Queue[Waiting] = task_queue.Queue()
    queue.push(Waiting(1, source=b"a"), priority=0)
    queue.push(Waiting(2, source=b"b"), priority=0)
    queue.push_front(Waiting(0, source=b"b"), priority=0)
    assert [item.number for item in drained(queue)] == [0, 1, 2]


def test_number_of_items_ahead_with_turns() -> None:
    queue: task_queue.Queue[Waiting] = task_queue.Queue()
    many = [Waiting(number, source=b"many") for number in range(5)]
    late = Waiting(9, source=b"late")
    for item in (*many, late):
        queue.push(item, priority=0)
    assert queue.ahead(late, priority=0) == 1
    assert queue.ahead(many[0], priority=0) == 0
    assert queue.ahead(many[4], priority=0) == 5


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 1)), max_size=40))
def test_no_source_waits_for_more_than_one_turn_of_each_other(
    given_items: list[tuple[bytes, int]],
) -> None:
    queue: task_queue.Queue[Waiting] = task_queue.Queue()
    for number, (source, priority) in enumerate(given_items):
        queue.push(Waiting(number, priority, source), priority=priority)
    order = drained(queue)
    assert len(order) == len(given_items)
    for priority in (0, 1):
        level = [item for item in order if item.priority == priority]
        left = [item.source for item in level]
        for at, item in enumerate(level[:-1]):
            others = set(left[at + 1 :]) - {item.source}
            assert not others or level[at + 1].source != item.source


@given(
    st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.sampled_from([b"a", b"b"]))), st.data()
)
def test_commands_are_found_behind_calls(
    given: list[tuple[int, bool, bytes]], data: st.DataObject
) -> None:
    """Whatever leaves and comes back meanwhile, each is given out once, and the counts hold."""
    queue: task_queue.Queue[Waiting] = task_queue.Queue()
    waiting: set[Waiting] = set()
    for number, (priority, command, source) in enumerate(given):
        item = Waiting(number, priority, source, template=None if command else "a call")
        queue.push(item, priority=priority)
        waiting.add(item)
    while waiting:
        commands = {item for item in waiting if item.template is None}
        assert (len(queue), queue.commands) == (len(waiting), len(commands))
        what = data.draw(st.sampled_from(["pop", "command", "remove", "again"]))
        if what == "command":
            found = queue.pop_command()
            assert (found is None) is (not commands)
            if found is not None:
                assert found in commands
                assert found.priority == max(item.priority for item in commands)
                rivals = [
                    i for i in commands if (i.source, i.priority) == (found.source, found.priority)
                ]
                assert found is min(rivals, key=by_number)
                waiting.discard(found)
        elif what == "remove":
            queue.remove(chosen := data.draw(st.sampled_from(sorted(waiting, key=by_number))))
            waiting.discard(chosen)
        else:
            popped = queue.pop()
            assert popped in waiting
            if what == "again":
                queue.push_front(popped, priority=popped.priority)
            else:
                waiting.discard(popped)
    assert queue.pop() is None
    assert queue.pop_command() is None


def by_number(item: Waiting) -> int:
    return item.number
