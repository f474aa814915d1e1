"""The certificate of a pond, with which its agents authenticate each other. It is self-signed.

Used by the controller, which stores it in the pond's Secret. It serves clients and servers, has one
name for all addresses of agents, and is replaced long before it expires.
"""

import datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.x509 import oid

from kilnwork.api import pond_certificate_names
from kilnwork.kit import certificate_primitives

DAYS = 3650
RENEW_DAYS = 365
"""Number of days before expiry at which a certificate is replaced. Agents with the old certificate
and agents with the new one do not trust each other, so this should be rare."""


class KeyPair(NamedTuple):
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


def create(*, now: float) -> KeyPair:
    """Create a new self-signed certificate and its key. `now`: wall clock, in seconds."""
    key = certificate_primitives.new_key()
    subject = certificate_primitives.name(pond_certificate_names.SERVER_NAME)
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    usages = [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        certificate_primitives.builder(subject, subject, key.public_key(), now=moment, days=DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(certificate_primitives.key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            certificate_primitives.alternatives([pond_certificate_names.SERVER_NAME]),
            critical=False,
        )
        .sign(key, certificate_primitives.SHA256)
    )
    return KeyPair(certificate_primitives.pem(made), certificate_primitives.key_pem(key))


def needs_renewal(pem: bytes, *, now: float) -> bool:
    """Return whether the certificate `pem` must be replaced: it expires soon, or is not a
    certificate.
    """
    try:
        found = x509.load_pem_x509_certificate(pem)
    except ValueError:
        return True
    left_s = found.not_valid_after_utc.timestamp() - now
    return left_s < RENEW_DAYS * 86_400
