"""Names that workers of another version must agree on."""

import pytest

from kilnwork.api import sync_set_env


def test_the_names_of_variables_do_not_change() -> None:
    assert sync_set_env.OUTPUTS == "KILN_OUTPUTS"
    assert sync_set_env.SPAWN_CLUSTER == "KILN_SPAWN_CLUSTER"


@pytest.mark.parametrize(
    ("run", "attempt", "expected"), [(1, 1, "t.1.1"), (2, 1, "t.2.1"), (1, 12, "t.1.12")]
)
def test_each_attempt_of_each_run_has_its_own_directory(
    run: int, attempt: int, expected: str
) -> None:
    assert sync_set_env.output_directory("t", run=run, attempt=attempt) == expected
