"""Tasks that wait for many children on a single slot: no way of waiting blocks it.

Also the errors of a home with a single TaskCluster about others.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest

import kilnwork as kiln

Wait = Callable[[Sequence[kiln.Future[int]]], int]


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[kiln.Session]:
    with kiln.start(slots=1) as session:
        yield session


@kiln.task
def child(number: int) -> int:
    return number


@kiln.task
def parent(count: int, wait: Wait) -> int:
    return wait(child.map(range(count)))


def by_get(made: Sequence[kiln.Future[int]]) -> int:
    return sum(kiln.get(made))


def by_gather(made: Sequence[kiln.Future[int]]) -> int:
    return sum(kiln.gather(*made).result())


def by_wait(made: Sequence[kiln.Future[int]]) -> int:
    done, _ = kiln.wait(made)
    return sum(each.result() for each in done)


def by_first_exception(made: Sequence[kiln.Future[int]]) -> int:
    done, _ = kiln.wait(made, return_when=kiln.FIRST_EXCEPTION)
    return sum(each.result() for each in done)


def by_gathers_as_completed(made: Sequence[kiln.Future[int]]) -> int:
    halves = [kiln.gather(*made[::2]), kiln.gather(*made[1::2])]
    return sum(sum(each.result()) for each in kiln.as_completed(halves))


@pytest.mark.parametrize("count", [4, 1200])
@pytest.mark.parametrize(
    "wait", [by_get, by_gather, by_wait, by_first_exception, by_gathers_as_completed]
)
def test_parent_gets_all_of_its_children(count: int, wait: Wait) -> None:
    assert parent.submit(count, wait).result(timeout=30) == sum(range(count))


@kiln.task
def elsewhere() -> int:
    return child.options(cluster="gpu").submit(1).result()


def test_unknown_cluster_of_a_home_is_refused() -> None:
    with pytest.raises(kiln.BadOption, match=r"cluster='gpu': .* kiln.connect\(\)"):
        child.options(cluster="gpu").submit(1)
    with pytest.raises(kiln.BadOption, match="cluster='gpu'"):
        elsewhere.submit().result(timeout=30)
    assert child.options(cluster="default").submit(1).result(timeout=30) == 1
