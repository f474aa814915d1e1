"""The environment variables of fbeltrao/aksjobscheduler."""

import pytest

from kilnwork.kit import errors
from kilnwork.server.jobs import aksjobscheduler_settings


def test_defaults_are_those_of_source_system() -> None:
    found = aksjobscheduler_settings.read({"ITEMSPERJOB": " "})
    assert (found.container, found.items_per_part, found.parallelism) == ("jobs", 100_000, 2)
    assert (found.aci_parallelism, found.aci_trigger) == (50, 6)


def test_environment_variables_are_read() -> None:
    found = aksjobscheduler_settings.read(
        {
            "CONTAINER": "old",
            "ITEMSPERJOB": "7",
            "MAXPARALLELISM": "3",
            "ACIMAXPARALLELISM": "1",
            "ACICOMPLETIONSTRIGGER": "0",
        }
    )
    assert (found.container, found.items_per_part, found.parallelism) == ("old", 7, 3)
    assert (found.aci_parallelism, found.aci_trigger) == (1, 0)


def test_containername_wins_over_container() -> None:
    assert aksjobscheduler_settings.read({"CONTAINERNAME": "a", "CONTAINER": "b"}).container == "a"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "٣", str(1 << 31)])
def test_value_that_is_not_positive_number_is_refused(text: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="ITEMSPERJOB"):
        aksjobscheduler_settings.read({"ITEMSPERJOB": text})
    assert (
        aksjobscheduler_settings.read({"ITEMSPERJOB": str((1 << 31) - 1)}).items_per_part
        == (1 << 31) - 1
    )
