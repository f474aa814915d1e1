"""Index sets: variables, labels, names of tasks, and ranges of numbers."""

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import job, job_indexes, names


def indexes(items: list[Any] | None = None, **parallelism: Any) -> job_indexes.IndexSet:
    return job_indexes.IndexSet(msgspec.convert(parallelism, job.Parallelism), items)


MATRIX = indexes(withMatrix={"floor": ["1", "2"], "city": ["oslo", "lima", "a,b=c"]})
ITEMS = indexes(["x", {"a": 1}, None], withResultOf={"task": "list"})
KEYS = indexes(withKeys=["red", "7", "0"])


def test_a_job_without_parallelism_has_one_index() -> None:
    one = job_indexes.IndexSet(None)
    assert (one.size, one.variables(0), one.label(0)) == (1, {"task.index_num": 0}, "0")
    assert one.status(0) == job.ParallelIndex(index_number=0)


def test_indexes_by_count() -> None:
    count = indexes(withCount=3)
    assert count.size == 3
    assert count.variables(2) == {"task.index_num": 2}
    assert (count.label(2), count.find("2")) == ("2", 2)


def test_indexes_by_keys() -> None:
    assert KEYS.variables(0) == {"task.index_num": 0, "task.index_key": "red"}
    assert KEYS.status(1) == job.ParallelIndex(index_key="7")
    # a key that looks like a number is that key
    assert [KEYS.find(label) for label in ("red", "7", "0", "2")] == [0, 1, 2, 2]


def test_last_key_of_a_matrix_varies_fastest_in_any_written_order() -> None:
    found = [MATRIX.variables(n) for n in range(MATRIX.size)]
    assert [v["task.index_matrix.city"] for v in found] == ["oslo"] * 2 + ["lima"] * 2 + [
        "a,b=c"
    ] * 2
    assert [v["task.index_matrix.floor"] for v in found] == ["1", "2"] * 3
    assert MATRIX.status(3) == job.ParallelIndex(matrix_values={"city": "lima", "floor": "2"})
    assert MATRIX.label(5) == "city=a,b=c,floor=2"


def test_items_of_a_list_keep_their_types() -> None:
    assert [ITEMS.variables(n)["task.index_item"] for n in range(3)] == ["x", {"a": 1}, None]
    assert ITEMS.status(2) == job.ParallelIndex(index_number=2)
    assert indexes([], withResultOf={"task": "list"}).size == 0
    with pytest.raises(ValueError, match="not known without its list"):
        indexes(withResultOf={"task": "list"})


@pytest.mark.parametrize("of", [MATRIX, ITEMS, KEYS, indexes(withCount=4)])
def test_labels_find_their_indexes(of: job_indexes.IndexSet) -> None:
    assert [of.find(of.label(n)) for n in range(of.size)] == list(range(of.size))


@given(
    some.dictionaries(
        some.text("ab,=1", min_size=1, max_size=3),
        some.lists(some.text("ab,=1", min_size=1, max_size=3), min_size=1, max_size=3, unique=True),
        min_size=1,
        max_size=3,
    )
)
def test_matrix_label_is_found_as_an_index_of_that_label(matrix: dict[str, Any]) -> None:
    of = indexes(withMatrix=matrix)
    for number in range(of.size):
        assert of.label(of.find(of.label(number))) == of.label(number)


@pytest.mark.parametrize("label", ["", "3", "-1", "1.0", "٣", "9" * 30, "blue"])
def test_unknown_index_is_refused_with_the_existing_ones(label: str) -> None:
    with pytest.raises(job_indexes.UnknownIndex, match="indexes are 0 to 2"):
        indexes(withCount=3).find(label)
    with pytest.raises(job_indexes.UnknownIndex, match="0 to 5, or city=oslo,floor=1 to"):
        MATRIX.find("city=rome,floor=1")
    with pytest.raises(job_indexes.UnknownIndex, match="there is no index 3"):
        KEYS.variables(3)


def test_million_indexes_use_no_memory() -> None:
    values = [str(n) for n in range(100)]
    tracemalloc.start()
    large = (
        indexes(withCount=1_000_000),
        indexes(withMatrix={"a": values, "b": values, "c": values}),
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000
    assert [of.size for of in large] == [1_000_000, 1_000_000]
    assert large[1].label(999_998) == "a=99,b=99,c=98"


JOB_NAMES = ("nightly", "n" * 56, "n" * 57, "n" * 63, "a.b", "a-b", "7", "a" * 55 + ".b")


@pytest.mark.parametrize("name", JOB_NAMES)
def test_names_of_10000_tasks_are_unique_labels_with_the_whole_index(name: str) -> None:
    numbers = [*range(10_000), job.MAX_INDEXES - 1]
    made = [job_indexes.task_name(name, number) for number in numbers]
    assert len(set(made)) == len(numbers)
    assert [int(one.rpartition("-")[2]) for one in made] == numbers
    assert len({one.rpartition("-")[0] for one in made}) == 1
    assert all(names.is_dns_label(one) for one in made)


def test_the_first_indexes_that_collide_in_furiko_do_not() -> None:
    assert job_indexes.task_name("j", 58) == "j-58"
    assert job_indexes.task_name("j", 69) == "j-69"


def test_jobs_whose_names_are_cut_have_tasks_of_different_names() -> None:
    made = {job_indexes.task_name("n" * 60 + end, 1) for end in ("a", "b", "c")}
    assert len(made) == 3


@given(some.text("abc-.019", min_size=1, max_size=63).filter(names.is_dns_subdomain))
def test_the_name_of_a_task_is_a_label(name: str) -> None:
    made = job_indexes.task_name(name, job.MAX_INDEXES - 1)
    assert names.is_dns_label(made)
    if len(name) <= job_indexes.MAX_PREFIX and names.is_dns_label(name):
        assert made == f"{name}-{job.MAX_INDEXES - 1}"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([3, 17, 18, 19], "3,17-19"),
        ([0, 1], "0-1"),
        ([0, 2, 4], "0,2,4"),
    ],
)
def test_ranges_of_numbers(numbers: list[int], text: str) -> None:
    assert job_indexes.ranges(numbers) == text


def test_long_ranges_end_with_the_number_of_omitted_numbers() -> None:
    assert job_indexes.ranges(range(0, 40, 2), limit=24) == "0,2,4,6,8,10,… (14 more)"
    text = job_indexes.ranges(range(0, 1_000_000, 2))
    assert 4000 < len(text) <= 4096
    assert text.endswith(" more)")


@given(some.sets(some.integers(0, 300)), some.integers(20, 200))
def test_ranges_contain_or_count_every_number(numbers: set[int], limit: int) -> None:
    text = job_indexes.ranges(sorted(numbers), limit)
    assert len(text) <= limit
    listed, _, omitted = text.partition(",… (")
    found: list[int] = []
    for one in listed.split(",") if listed else ():
        first, _, last = one.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    left = int(omitted.removesuffix(" more)") or 0)
    assert found == sorted(numbers)[: len(found)]
    assert len(found) + left == len(numbers)
