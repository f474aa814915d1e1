"""Certificates: usable, private, renewed, and repaired where that is safe."""

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from kilnwork.controlplane.apiserver import pki
from kilnwork.kit import clock as clocks
from kilnwork.kit import errors

_DAY = 86_400


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock(clocks.SystemClock().wall())


@pytest.fixture
def prepared_pki(tmp_path: Path, clock: clocks.ManualClock) -> pki.Pki:
    found = pki.Pki(tmp_path / "pki", clock=clock)
    found.prepare()
    return found


async def test_mutual_tls_works_with_strict_verification(prepared_pki: pki.Pki) -> None:
    seen: list[object] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("ssl_object").getpeercert()["subject"])
        writer.close()

    server_side = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=prepared_pki.ca_certificate
    )
    server_side.verify_mode = ssl.CERT_REQUIRED
    server_side.load_cert_chain(prepared_pki.server.certificate, prepared_pki.server.key)
    client_side = ssl.create_default_context(cafile=prepared_pki.ca_certificate)
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    client_side.load_cert_chain(
        prepared_pki.kubelet_client.certificate, prepared_pki.kubelet_client.key
    )
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side)
    port = server.sockets[0].getsockname()[1]
    async with server:
        for name in pki.SERVER_NAMES:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_side, server_hostname=name
            )
            await reader.read()
            writer.close()
            await writer.wait_closed()
    assert len(seen) == len(pki.SERVER_NAMES)
    assert "system:masters" in str(seen[0])


def test_certificate_files_are_private(prepared_pki: pki.Pki) -> None:
    directory = prepared_pki.ca_certificate.parent
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o777 for f in directory.iterdir()} == {0o600}


def test_second_start_changes_nothing(prepared_pki: pki.Pki) -> None:
    directory = prepared_pki.ca_certificate.parent
    before = {f.name: f.read_bytes() for f in directory.iterdir()}
    prepared_pki.prepare()
    assert {f.name: f.read_bytes() for f in directory.iterdir()} == before


def test_server_certificate_is_renewed_by_the_same_ca(
    prepared_pki: pki.Pki, clock: clocks.ManualClock
) -> None:
    ca, server = prepared_pki.ca_data(), prepared_pki.server.certificate.read_bytes()
    clock.advance(pki.LEAF_DAYS * _DAY - pki.RENEW_BEFORE_S - _DAY)
    prepared_pki.prepare()
    assert prepared_pki.server.certificate.read_bytes() == server
    clock.advance(2 * _DAY)
    prepared_pki.prepare()
    assert prepared_pki.server.certificate.read_bytes() != server
    assert prepared_pki.ca_data() == ca


def test_old_ca_is_replaced_with_everything_it_signed(
    prepared_pki: pki.Pki, clock: clocks.ManualClock
) -> None:
    ca = prepared_pki.ca_data()
    clock.advance((pki.CA_DAYS - 29) * _DAY)
    prepared_pki.prepare()
    assert prepared_pki.ca_data() != ca
    signer = x509.load_pem_x509_certificate(prepared_pki.ca_data())
    served = x509.load_pem_x509_certificate(prepared_pki.server.certificate.read_bytes())
    served.verify_directly_issued_by(signer)


def test_broken_leaf_certificate_is_replaced(prepared_pki: pki.Pki) -> None:
    prepared_pki.server.certificate.write_text("nonsense")
    prepared_pki.prepare()
    served = x509.load_pem_x509_certificate(prepared_pki.server.certificate.read_bytes())
    assert served.issuer == x509.load_pem_x509_certificate(prepared_pki.ca_data()).subject


def test_interrupted_start_is_completed(prepared_pki: pki.Pki) -> None:
    prepared_pki.ca_certificate.unlink()
    prepared_pki.prepare()
    signer = x509.load_pem_x509_certificate(prepared_pki.ca_data())
    served = x509.load_pem_x509_certificate(prepared_pki.server.certificate.read_bytes())
    served.verify_directly_issued_by(signer)


@pytest.mark.parametrize("content", ["nonsense", None])
def test_unusable_ca_key_is_an_error_with_a_remedy(
    prepared_pki: pki.Pki, content: str | None
) -> None:
    key = prepared_pki.ca_certificate.with_suffix(".key")
    if content is None:
        key.unlink()
    else:
        key.write_text(content)
    with pytest.raises(errors.ConfigurationError, match="remove that directory"):
        prepared_pki.prepare()


def test_foreign_ca_key_is_an_error(
    prepared_pki: pki.Pki, tmp_path: Path, clock: clocks.ManualClock
) -> None:
    other = pki.Pki(tmp_path / "other", clock=clock)
    other.prepare()
    prepared_pki.ca_certificate.with_suffix(".key").write_bytes(
        other.ca_certificate.with_suffix(".key").read_bytes()
    )
    with pytest.raises(errors.ConfigurationError, match="does not belong"):
        prepared_pki.prepare()


def test_node_certificate_names_node_and_group(prepared_pki: pki.Pki) -> None:
    pair = prepared_pki.node("local", addresses=["10.0.0.7"])
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    assert certificate.subject.rfc4514_string() == "CN=system:node:local,O=system:nodes"
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.0.0.7" in {str(name.value) for name in found}
    assert prepared_pki.node("local", addresses=["10.0.0.7"]) == pair
    assert x509.load_pem_x509_certificate(pair.certificate.read_bytes()) == certificate
