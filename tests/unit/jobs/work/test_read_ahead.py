"""A thread reads a few pieces ahead, in order, and passes on its errors."""

import random
from collections.abc import Iterator
from concurrent import futures

import pytest

from kilnwork.jobs.work import read_ahead


@pytest.fixture
def aside() -> Iterator[futures.Executor]:
    with futures.ThreadPoolExecutor(1) as made:
        yield made


def test_pieces_of_any_size_keep_their_order(aside: futures.Executor) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sizes = [chance.choice((1, 100, 70_000, read_ahead.GROUP_BYTES)) for _ in range(300)]
    wanted = [chance.randbytes(1) * size for size in sizes]
    assert list(read_ahead.read_pieces(iter(wanted), aside)) == wanted


def test_empty_source_gives_no_pieces(aside: futures.Executor) -> None:
    assert list(read_ahead.read_pieces(iter(()), aside)) == []


def test_error_is_raised_in_its_place(aside: futures.Executor) -> None:
    large = bytes(read_ahead.GROUP_BYTES)

    def source() -> Iterator[bytes]:
        yield large
        yield large
        yield b"lost with the error"
        raise ValueError("the third is bad")

    given = read_ahead.read_pieces(source(), aside)
    assert [next(given), next(given)] == [large, large]
    with pytest.raises(ValueError, match="the third is bad"):
        next(given)


def test_only_few_groups_are_read_ahead(aside: futures.Executor) -> None:
    made = 0

    def source() -> Iterator[bytes]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield bytes(read_ahead.GROUP_BYTES)

    given = read_ahead.read_pieces(source(), aside)
    for used in range(1, 11):
        next(given)
        aside.submit(int).result()  # one thread: what was asked for before is made
        assert made == used + read_ahead.MAX_AHEAD
