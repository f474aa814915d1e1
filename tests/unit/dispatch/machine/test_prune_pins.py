"""Pins: what prunes leave, and what they are about to delete."""

from kilnwork.dispatch.machine import prune_pins
from kilnwork.kit import ids

ONE, TWO, THREE = (ids.TaskId(bytes([number]) * 16) for number in (1, 2, 3))


def test_pins_are_collected_during_a_prune() -> None:
    all_pins = prune_pins.Pins()
    all_pins.pin((ONE,))
    with all_pins.collect((TWO,)) as pinned:
        assert pinned == {TWO}
        all_pins.pin((THREE,))
        assert pinned == {TWO, THREE}
    all_pins.pin((ONE,))
    assert pinned == {TWO, THREE}


def test_each_prune_gets_the_pins_since_its_start() -> None:
    all_pins = prune_pins.Pins()
    with all_pins.collect(()) as first:
        with all_pins.collect(()) as second:
            assert first == second
            all_pins.pin((ONE,))
        all_pins.pin((TWO,))
    assert (first, second) == ({ONE, TWO}, {ONE})


def test_a_task_is_retiring_until_its_deletion_is_over() -> None:
    all_pins = prune_pins.Pins()
    assert not all_pins.is_retiring(ONE)
    with all_pins.retire((ONE, TWO)):
        assert all_pins.is_retiring(ONE)
        with all_pins.retire((TWO, THREE)):  # another prune has chosen one of them too
            assert all_pins.is_retiring(THREE)
        assert all_pins.is_retiring(TWO)
        assert not all_pins.is_retiring(THREE)
    assert not all_pins.is_retiring(ONE)
