"""What an agent reads from its environment."""

from pathlib import Path

import pytest

from kilnwork.kit import errors
from kilnwork.pond import settings

NEEDED = {
    "KILN_MANAGER": "https://m/",
    "KILN_NAMESPACE": "x",
    "KILN_POND": "p",
    "KILN_NODE": "n",
    "KILN_TOKEN_FILE": "/t",
    "KILN_POND_PATH": "/d",
}


def test_required_variables_are_sufficient() -> None:
    found = settings.from_environment(NEEDED)
    assert found == settings.AgentSettings(
        manager="https://m",
        namespace="x",
        pond="p",
        node="n",
        token_file=Path("/t"),
        root=Path("/d"),
    )


@pytest.mark.parametrize("name", list(NEEDED))
def test_missing_or_empty_variable_is_named(name: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"^{name} must be set"):
        settings.from_environment({**NEEDED, name: ""})


def test_the_rest_is_read_where_it_is_given() -> None:
    found = settings.from_environment(
        {**NEEDED, "KILN_POND_SECRETS": "/s", "KILN_POND_HOST": "h", "KILN_POND_ABSENCE_S": "1.5"}
    )
    assert (found.secrets, found.host, found.absence_s) == (Path("/s"), "h", 1.5)
    assert (found.ca_file, found.certificates) == (None, None)


def test_an_absence_that_is_no_number_is_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="KILN_POND_ABSENCE_S"):
        settings.from_environment({**NEEDED, "KILN_POND_ABSENCE_S": "soon"})
