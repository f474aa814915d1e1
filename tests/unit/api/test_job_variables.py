"""Names of the variables of Jobs."""

import pytest

from kilnwork.api import job, job_variables


@pytest.mark.parametrize(
    ("parallelism", "names"),
    [
        (None, {"task.index_num"}),
        (job.Parallelism(with_count=2), {"task.index_num"}),
        (job.Parallelism(with_keys=("a",)), {"task.index_num", "task.index_key"}),
        (
            job.Parallelism(with_matrix={"x": ("1",), "y": ("2",)}),
            {"task.index_num", "task.index_matrix.x", "task.index_matrix.y"},
        ),
        (
            job.Parallelism(with_result_of=job.ResultSource(task="t")),
            {"task.index_num", "task.index_item"},
        ),
    ],
)
def test_an_index_has_the_variables_of_its_set(
    parallelism: job.Parallelism | None, names: set[str]
) -> None:
    assert set(job_variables.of_index(parallelism)) == names


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("option.x", True), ("task.name", True), ("HOME", False), ("option.${x}", False)],
)
def test_is_variable_for_names(name: str, *, is_one: bool) -> None:
    assert job_variables.is_variable(name) is is_one


def test_variables_with_an_alternative_are_not_early() -> None:
    assert not set(job_variables.EARLY) & set(job_variables.INSTEAD_IN_COMMANDS)
    assert set(job_variables.INSTEAD_IN_CALLS) == set(job_variables.INSTEAD_IN_COMMANDS)
    assert job_variables.of_options(["a"]) == ["option.a"]
