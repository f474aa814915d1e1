"""Names that agents and the manager of another version must agree on."""

import pytest

from kilnwork.api import names, pond_certificate_names


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pond_certificate_names.SERVER_NAME, "agent.pond.kilnwork.dev"),
        (pond_certificate_names.TOKEN_KEY, "token"),
        (pond_certificate_names.CERTIFICATE_KEY, "tls.crt"),
        (pond_certificate_names.PRIVATE_KEY_KEY, "tls.key"),
        (pond_certificate_names.CA_KEY, "ca.crt"),
    ],
)
def test_the_names_in_a_secret_and_its_certificate_do_not_change(found: str, expected: str) -> None:
    assert found == expected


def test_server_name_is_a_valid_dns_name() -> None:
    assert not names.subdomain_problem(pond_certificate_names.SERVER_NAME)
