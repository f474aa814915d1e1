"""Nothing grows old by a clock that is set."""

import random
from pathlib import Path

import pytest

from kilnwork.kit import clock as clocks
from kilnwork.kit import retention_clock
from kilnwork.kit.retention_clock import RetentionClock

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


def run(kept: RetentionClock, clock: clocks.ManualClock, seconds: float) -> None:
    """The process runs on and looks every ten seconds."""
    while seconds > 0:
        step = min(seconds, retention_clock.SAMPLE_S)
        clock.advance(step)
        kept.sample()
        seconds -= step


def is_old(kept: RetentionClock, wall: float, keep_s: float) -> bool:
    old = wall < kept.old_before(keep_s)
    assert not old or kept.age(wall) > keep_s
    return old


def test_without_jumps_it_is_the_wall_clock(clock: clocks.ManualClock) -> None:
    kept = RetentionClock(None, clock)
    made = clock.wall()
    clock.advance(WEEK_S - 1)
    assert not is_old(kept, made, WEEK_S)
    assert kept.age(made) == WEEK_S - 1
    clock.advance(2)
    assert is_old(kept, made, WEEK_S)
    assert is_old(kept, made - 30 * DAY_S, WEEK_S)


@pytest.mark.parametrize("jump", [WEEK_S, 400 * DAY_S])
def test_a_jump_forward_and_back_makes_nothing_old(clock: clocks.ManualClock, jump: float) -> None:
    kept = RetentionClock(None, clock)
    run(kept, clock, 60)
    before = clock.wall()
    run(kept, clock, 60)
    clock.jump(jump)
    run(kept, clock, 60)
    during = clock.wall()
    assert not any(is_old(kept, one, 3600) for one in (before, during))
    clock.jump(-jump)
    run(kept, clock, 60)
    after = clock.wall()
    assert not any(is_old(kept, one, 3600) for one in (before, during, after))
    run(kept, clock, 3700)
    assert is_old(kept, before, 3600)
    assert is_old(kept, after, 3600)


def test_things_made_while_the_clock_was_behind_are_not_old(clock: clocks.ManualClock) -> None:
    kept = RetentionClock(None, clock)
    clock.jump(-WEEK_S)
    run(kept, clock, 60)
    during = clock.wall()
    run(kept, clock, 60)
    clock.jump(WEEK_S)
    run(kept, clock, 60)
    assert not is_old(kept, during, DAY_S)
    assert kept.age(during) == pytest.approx(120, abs=1)
    run(kept, clock, DAY_S)
    assert is_old(kept, during, DAY_S)


def test_a_process_that_starts_again_goes_on(clock: clocks.ManualClock, tmp_path: Path) -> None:
    """On the same machine by its monotonic clock, whatever the wall clock says."""
    made = clock.wall()
    kept = RetentionClock(tmp_path / "clock", clock, boot="a")
    run(kept, clock, 60)
    kept.save()
    clock.advance(3 * DAY_S)
    clock.jump(WEEK_S)
    kept = RetentionClock(tmp_path / "clock", clock, boot="a")
    assert kept.age(made) == pytest.approx(3 * DAY_S + 60, abs=1)
    assert not is_old(kept, made, WEEK_S)
    clock.jump(-WEEK_S)
    assert kept.age(made) == pytest.approx(3 * DAY_S + 60, abs=1)


def test_a_machine_that_starts_again_counts_a_day_at_most(
    clock: clocks.ManualClock, tmp_path: Path
) -> None:
    made = clock.wall() - 1
    RetentionClock(tmp_path / "clock", clock, boot="a").save()
    clock.jump(WEEK_S)
    kept = RetentionClock(tmp_path / "clock", clock, boot="b")
    assert kept.age(made) == DAY_S + 1
    kept.save()
    clock.jump(-WEEK_S)
    kept = RetentionClock(tmp_path / "clock", clock, boot="c")
    assert kept.age(made) == DAY_S + 1
    kept.save()
    clock.jump(3600)
    kept = RetentionClock(tmp_path / "clock", clock, boot="d")
    assert kept.age(made) == DAY_S + 3601


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"count": "x"}', "\udcff"])
def test_unreadable_file_counts_as_a_first_start(
    clock: clocks.ManualClock, tmp_path: Path, content: str
) -> None:
    (tmp_path / "clock").write_bytes(content.encode(errors="surrogateescape"))
    kept = RetentionClock(tmp_path / "clock", clock)
    assert kept.age(clock.wall() - 5) == 5
    kept.save()
    assert [path.name for path in tmp_path.iterdir()] == ["clock"]


def test_small_adjustments_are_followed(clock: clocks.ManualClock) -> None:
    """NTP makes a clock a little faster or slower for a long time."""
    kept = RetentionClock(None, clock)
    made = clock.wall()
    for _ in range(1000):
        clock.jump(0.005)
        run(kept, clock, 10)
    assert kept.age(made) == pytest.approx(10_005, abs=0.1)
    assert is_old(kept, made, 10_000)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_older_than_it_is(seed: int, tmp_path: Path) -> None:
    """Whatever the clock does, and however often the process starts again."""
    draw, clock = random.Random(seed), clocks.ManualClock()
    path = tmp_path / "clock"
    kept = RetentionClock(path, clock, boot="a")
    made = [(clock.wall(), clock.monotonic())]
    for _ in range(100):
        match draw.randrange(4):
            case 0:
                clock.jump(draw.choice((-1, 1)) * draw.uniform(2, 30 * DAY_S))
            case 1:
                kept.sample()
                kept.save()
                clock.advance(draw.uniform(0, DAY_S))
                kept = RetentionClock(path, clock, boot="a")
        kept.sample()
        made.append((clock.wall(), clock.monotonic()))
        run(kept, clock, draw.uniform(0, 100))
        for wall, since in made[-20:]:
            true_age = clock.monotonic() - since
            assert kept.age(wall) <= true_age + 1, f"seed {seed}"
            assert not is_old(kept, wall, true_age + 1), f"seed {seed}"
    # In the end everything goes.
    clock.advance(100 * DAY_S)
    assert is_old(kept, made[-1][0], DAY_S)
