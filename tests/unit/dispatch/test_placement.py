"""Who is next, and where."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kilnwork.dispatch import placement


@dataclass(eq=False)
class Waiting:
    number: int
    priority: int = 0
    place: int | None = None


@dataclass
class Seat:
    name: str
    slots: int
    busy: int = 0
    ready: bool = True


def filled(*priorities: int) -> tuple[placement.Queue[Waiting], list[Waiting]]:
    queue: placement.Queue[Waiting] = placement.Queue()
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


def test_what_was_taken_back_goes_first() -> None:
    queue, _ = filled(0, 0)
    back = Waiting(9)
    queue.push_front(back, priority=0)
    assert queue.pop() is back


def test_an_item_that_left_and_came_back_is_given_out_once() -> None:
    queue, items = filled(0, 0)
    queue.remove(items[0])
    queue.push(items[0], priority=0)
    assert [queue.pop(), queue.pop(), queue.pop()] == [items[1], items[0], None]


def test_how_many_are_ahead() -> None:
    queue, items = filled(0, 5, 0, -1)
    ahead = [queue.ahead(item, priority=item.priority) for item in items]
    assert ahead == [1, 0, 2, 3]


def test_the_least_loaded_worker_gets_the_next_task() -> None:
    workers = [
        Seat("full", 2, busy=2),
        Seat("one", 2, busy=1),
        Seat("three", 3),
        Seat("away", 9, ready=False),
    ]
    taken = []
    for seat in placement.seats(workers):
        seat.busy += 1
        taken.append(seat.name)
    assert taken == ["three", "three", "one", "three"]
