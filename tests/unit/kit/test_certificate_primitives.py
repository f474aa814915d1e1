"""Parts of certificates: keys, names, alternatives."""

import datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kilnwork.kit import certificate_primitives

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
KEY = certificate_primitives.new_key()


def test_a_key_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(certificate_primitives.key_pem(KEY))
    assert certificate_primitives.load_key(path).private_numbers() == KEY.private_numbers()


def test_another_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(certificate_primitives.key_pem(rsa.generate_private_key(65_537, 2048)))
    with pytest.raises(TypeError, match="no elliptic-curve key"):
        certificate_primitives.load_key(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r".+"):
        certificate_primitives.load_key(path)


def test_organisations_come_before_the_name() -> None:
    found = certificate_primitives.name("ann", "system:masters", "quant")
    assert [part.value for part in found] == ["system:masters", "quant", "ann"]


def test_addresses_and_host_names_are_alternatives() -> None:
    name = certificate_primitives.name("x")
    made = (
        certificate_primitives.builder(name, name, KEY.public_key(), now=NOW, days=2)
        .add_extension(
            certificate_primitives.alternatives(["a.example", "10.0.0.1", "::1"]), critical=False
        )
        .sign(KEY, certificate_primitives.SHA256)
    )
    assert certificate_primitives.names_of(made) == {"a.example", "10.0.0.1", "::1"}
    assert made.not_valid_before_utc == NOW - datetime.timedelta(hours=1)
    assert made.not_valid_after_utc == NOW + datetime.timedelta(days=2)


def test_a_certificate_may_have_no_alternatives() -> None:
    name = certificate_primitives.name("x")
    made = certificate_primitives.builder(name, name, KEY.public_key(), now=NOW, days=1)
    assert certificate_primitives.names_of(made.sign(KEY, certificate_primitives.SHA256)) == set()


@pytest.mark.parametrize("signs", [True, False])
def test_only_an_authority_signs_certificates(*, signs: bool) -> None:
    usage = certificate_primitives.key_usage(signs_certificates=signs)
    assert usage.key_cert_sign is signs
    assert usage.digital_signature
