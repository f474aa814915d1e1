"""When a certificate from the cluster is requested again."""

import datetime
from pathlib import Path

from cryptography import x509

from kilnwork.controlplane.node import own_certificate, requested_certificate
from kilnwork.kit import clock

NOW = clock.ManualClock()


def ensure(directory: Path, *, name: str = "n1", address: str = "10.0.0.5") -> bytes:
    certificate, key = directory / "c.crt", directory / "c.key"
    own_certificate.ensure(certificate, key, name=name, address=address, now=NOW)
    return certificate.read_bytes()


def test_certificate_is_renewed_at_80_percent_of_its_lifetime(tmp_path: Path) -> None:
    found = x509.load_pem_x509_certificate(ensure(tmp_path))
    life = found.not_valid_after_utc - found.not_valid_before_utc
    expected = found.not_valid_before_utc + life * 0.8
    left_s = requested_certificate.renewal_s(found, NOW.wall())
    moment = datetime.datetime.fromtimestamp(NOW.wall() + left_s, datetime.UTC)
    assert abs((moment - expected).total_seconds()) < 1
    over = found.not_valid_after_utc.timestamp()
    assert requested_certificate.renewal_s(found, over) == requested_certificate.LOOK_S
