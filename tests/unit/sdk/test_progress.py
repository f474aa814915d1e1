"""The line of `progress=True`: what it says, and that it says nothing to a pipe."""

import io
import threading

import pytest

from kilnwork.kit import clock
from kilnwork.sdk import futures, progress


class Ended(futures.Future[int]):
    """A future that the test ends."""

    __slots__ = ()

    def fail(self, error: BaseException) -> None:
        self.settle(futures.ERROR, error)

    def _open(self) -> None:
        """It is open."""


class Screen(io.StringIO):
    """A terminal of which all is kept that was ever written."""

    def isatty(self) -> bool:
        return True


def lines(screen: io.StringIO) -> list[str]:
    """What stands there when all is written: a carriage return goes back to the beginning."""
    return [line.rpartition("\r")[2].rstrip() for line in screen.getvalue().split("\n")]


@pytest.fixture
def time() -> clock.ManualClock:
    return clock.ManualClock()


def a_line(
    screen: io.StringIO, time: clock.ManualClock, number: int, width: int = 100
) -> tuple[progress.Line, list[Ended]]:
    items = [Ended() for _ in range(number)]
    line = progress.Line("leaf", screen, time=time, width=width)
    futures.Futures(items).follow(line.found, line.ended)
    return line, items


def test_line_shows_done_and_remaining_calls(time: clock.ManualClock) -> None:
    line, items = a_line(screen := Screen(), time, 4)
    line.draw()
    assert lines(screen)[-1] == "leaf  [..........]   0%  0 of 4"
    time.advance(1.0)
    for each in items[:2]:
        each.settle(futures.VALUE, 1)
    line.draw()
    assert lines(screen)[-1] == "leaf  [#####.....]  50%  2 of 4  1 s left  2/s"
    time.advance(1.0)
    for each in items[2:]:
        each.settle(futures.VALUE, 1)
    line.draw()
    assert lines(screen) == ["leaf  [##########] 100%  4 of 4  2/s  in 2 s"]


def test_failures_are_printed_above_the_line(time: clock.ManualClock) -> None:
    line, items = a_line(screen := Screen(), time, 3)
    items[1].fail(ValueError("bad leaf\nwith details"))
    line.draw()
    assert lines(screen) == [
        "leaf failed: ValueError: bad leaf",
        "leaf  [###.......]  33%  1 of 3  1 failed",
    ]
    items[0].fail(KeyError())
    items[2].settle(futures.CANCELLED)
    line.draw()
    assert lines(screen)[1:] == [
        "leaf failed: KeyError",
        "leaf  [##########] 100%  3 of 3  2 failed  1 cancelled  in 0 s",
    ]


def test_only_the_first_of_many_failures_are_printed(time: clock.ManualClock) -> None:
    line, items = a_line(screen := Screen(), time, 100)
    for each in items:
        each.fail(ValueError("no"))
    line.draw()
    shown = lines(screen)
    assert len(shown) == progress.MAX_FAILURES + 2
    assert shown[-2] == "leaf: more failures are counted and not shown"
    assert "100 failed" in shown[-1]


def test_a_line_is_as_wide_as_the_screen(time: clock.ManualClock) -> None:
    line, items = a_line(screen := Screen(), time, 1, width=20)
    items[0].fail(ValueError("x" * 500))
    line.draw()
    assert max(len(text) for text in screen.getvalue().replace("\n", "\r").split("\r")) == 20


def test_a_map_that_grows_has_no_total_yet(time: clock.ManualClock) -> None:
    line = progress.Line("leaf", screen := Screen(), time=time, width=100)
    first, second = Ended(), Ended()
    line.found(first)
    first.settle(futures.VALUE, 1)
    line.found(second)
    line.draw()
    assert lines(screen)[-1] == "leaf  1"
    line.ended(None)
    line.draw()
    assert lines(screen)[-1] == "leaf  [#####.....]  50%  1 of 2"


def test_a_pipe_gets_nothing() -> None:
    before = threading.active_count()
    with progress.show(futures.Futures([Ended()]), "leaf", stream=io.StringIO()):
        assert threading.active_count() == before


def test_line_ends_by_itself_when_all_calls_are_done() -> None:
    one = Ended()
    shown = progress.show(futures.Futures([one]), "leaf", stream=(screen := Screen()))
    assert isinstance(shown, progress.Line)
    one.settle(futures.VALUE, 1)
    shown.stop()
    shown.stop()
    assert screen.getvalue().endswith("\n")
    assert lines(screen)[0].startswith("leaf  [##########] 100%  1 of 1")


def test_line_is_complete_when_its_block_is_left_early() -> None:
    with progress.show(futures.Futures([Ended()]), "leaf", stream=(screen := Screen())):
        pass
    assert lines(screen) == ["leaf  [..........]   0%  0 of 1", ""]
