"""Portions of data: every one has a worker, and what is there is not moved."""

from hypothesis import given
from hypothesis import strategies as st

from kilnwork.controllers.gangs import data_portions


def new(name: str, node: str = "") -> data_portions.Holder:
    return data_portions.Holder(name, node)


def with_some(name: str, *has: int, node: str = "") -> data_portions.Holder:
    return data_portions.Holder(name, node, frozenset(has))


def share(count: int, *holders: data_portions.Holder, **held: set[int]) -> dict[str, list[int]]:
    by_node = {node: frozenset(has) for node, has in held.items()}
    found = data_portions.share(count, holders, near=by_node)
    return {name: sorted(has) for name, has in found.items()}


def test_first_workers_get_neighbouring_portions() -> None:
    assert share(5, new("a"), new("b")) == {"a": [0, 1, 2], "b": [3, 4]}
    assert share(4, new("a"), new("b"), new("c")) == {"a": [0, 1], "b": [2], "c": [3]}


def test_replacement_gets_the_portions_of_the_lost_worker() -> None:
    found = share(4, with_some("a", 0, 1), new("c"))
    assert found == {"a": [0, 1], "c": [2, 3]}


def test_replacements_get_portions_that_their_nodes_hold() -> None:
    lost = share(4, with_some("a", 0), new("c", "x"), new("d", "y"), x={2, 3}, y={1})
    assert lost == {"a": [0], "c": [2, 3], "d": [1]}


def test_other_workers_get_the_portions_without_a_replacement() -> None:
    found = share(4, with_some("a", 0), with_some("b", 2, node="y"), y={1, 2})
    assert found == {"a": [0, 3], "b": [1, 2]}


def test_additional_workers_share_portions_of_the_busiest() -> None:
    found = share(6, with_some("a", 0, 1), with_some("b", 2, 3, 4, 5), new("c"))
    assert found == {"a": [0, 1], "b": [2, 3, 4, 5], "c": [2, 3]}


def test_more_workers_than_portions_get_one_each() -> None:
    found = share(2, new("a"), new("b"), new("c"), new("d"))
    assert sorted(found.values()) == [[0], [0], [1], [1]]


@given(
    st.integers(0, 12),
    st.lists(
        st.tuples(st.none() | st.frozensets(st.integers(0, 11)), st.sampled_from("xyz")),
        min_size=1,
        max_size=8,
    ),
    st.dictionaries(st.sampled_from("xyz"), st.frozensets(st.integers(0, 11))),
)
def test_every_portion_has_a_worker_and_every_worker_a_portion(
    count: int,
    given_: list[tuple[frozenset[int] | None, str]],
    held: dict[str, frozenset[int]],
) -> None:
    holders = [
        data_portions.Holder(
            f"w{number}",
            node,
            None if has is None else frozenset(p for p in has if p < count),
        )
        for number, (has, node) in enumerate(given_)
    ]
    found = data_portions.share(count, holders, near=held)
    assert frozenset(range(count)) == frozenset().union(*found.values())
    for one in holders:
        assert found[one.name] >= (one.portions or frozenset())
        assert one.portions is not None or found[one.name] or not count
    again = [data_portions.Holder(one.name, one.node, found[one.name]) for one in holders]
    assert data_portions.share(count, again, near=held) == found


def test_portions_that_no_node_holds_are_missing() -> None:
    places = {"worker": {"a": frozenset({0, 2}), "b": frozenset({2})}}
    assert data_portions.missing({"worker": 4, "solver": 1}, places) == {
        "worker": [1, 3],
        "solver": [0],
    }
    assert (
        data_portions.missing(
            {"worker": 3}, data_portions.merge(places, {"worker": {"a": frozenset({1})}})
        )
        == {}
    )


def test_node_keeps_its_portions_while_it_fetches_more() -> None:
    few, more = frozenset({1}), frozenset({1, 2})
    before = {"worker": {"a": few, "gone": few}}
    wanted = {"worker": {"a": more, "b": few, "gone": few, "new": few}}
    ready = {"a": False, "b": True, "new": False}
    assert data_portions.held(before, wanted, ready) == {"worker": {"a": few, "b": few}}
