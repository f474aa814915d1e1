"""The serving certificate that a node signs itself: kept while it is good."""

from pathlib import Path

from cryptography import x509

from kilnwork.controlplane.node import own_certificate
from kilnwork.kit import clock

NOW = clock.ManualClock()


def ensure(directory: Path, *, name: str = "n1", address: str = "10.0.0.5") -> bytes:
    certificate, key = directory / "c.crt", directory / "c.key"
    own_certificate.ensure(certificate, key, name=name, address=address, now=NOW)
    return certificate.read_bytes()


def test_certificate_names_the_node_and_its_address(tmp_path: Path) -> None:
    found = x509.load_pem_x509_certificate(ensure(tmp_path))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["n1", "10.0.0.5"]
    assert (tmp_path / "c.key").stat().st_mode & 0o777 == 0o600


def test_certificate_is_kept_until_names_change(tmp_path: Path) -> None:
    first = ensure(tmp_path)
    assert ensure(tmp_path) == first
    other = ensure(tmp_path, address="10.0.0.6")
    assert other != first
    (tmp_path / "c.key").unlink()
    assert ensure(tmp_path, address="10.0.0.6") != other


def test_certificate_is_replaced_before_it_expires(tmp_path: Path) -> None:
    later = clock.ManualClock(NOW.wall() + (own_certificate.DAYS - 29) * 86_400)
    first = ensure(tmp_path)
    certificate, key = tmp_path / "c.crt", tmp_path / "c.key"
    own_certificate.ensure(certificate, key, name="n1", address="10.0.0.5", now=later)
    assert certificate.read_bytes() != first
