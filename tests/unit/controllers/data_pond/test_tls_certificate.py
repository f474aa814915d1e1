"""The certificate of a pond: its names, its use, and when it is replaced."""

import pytest
from cryptography import x509

from kilnwork.api import pond_certificate_names
from kilnwork.controllers.data_pond import tls_certificate
from kilnwork.kit import certificate_primitives

NOW = 1_800_000_000.0
DAY_S = 86_400
PAIR = tls_certificate.create(now=NOW)


def test_certificate_has_one_server_name_for_every_address() -> None:
    found = x509.load_pem_x509_certificate(PAIR.certificate)
    assert certificate_primitives.names_of(found) == {pond_certificate_names.SERVER_NAME}
    assert found.subject == found.issuer


def test_certificate_is_valid_from_now_for_ten_years() -> None:
    found = x509.load_pem_x509_certificate(PAIR.certificate)
    assert found.not_valid_before_utc.timestamp() < NOW
    assert found.not_valid_after_utc.timestamp() == NOW + 3650 * DAY_S


@pytest.mark.parametrize(
    ("days", "soon"), [(0, False), (3650 - 366, False), (3650 - 364, True), (4000, True)]
)
def test_certificate_is_replaced_a_year_before_expiry(days: int, *, soon: bool) -> None:
    assert tls_certificate.needs_renewal(PAIR.certificate, now=NOW + days * DAY_S) is soon


def test_invalid_certificate_is_replaced() -> None:
    assert tls_certificate.needs_renewal(b"", now=NOW)
    assert tls_certificate.needs_renewal(PAIR.key, now=NOW)
