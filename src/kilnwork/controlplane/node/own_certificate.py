"""Self-signed serving certificate of a node, for API servers that do not verify it.

Used by `virtual_node`; corresponds to the certificate of a kubelet without `serverTLSBootstrap`.
kube-apiserver verifies the certificates of nodes only with --kubelet-certificate-authority. The
certificate is kept on disk, so that a restarted node presents the same one.
"""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from kilnwork.kit import certificate_primitives, clock, data_directories

DAYS = 365
_RENEW = datetime.timedelta(days=30)


def ensure(certificate: Path, key: Path, *, name: str, address: str, now: clock.Clock) -> None:
    """Create the certificate and its key unless a valid pair exists. Raises OSError."""
    moment = datetime.datetime.fromtimestamp(now.wall(), datetime.UTC)
    if not _is_good(certificate, key, {name, address}, moment + _RENEW):
        private = certificate_primitives.new_key()
        # Removed first: after a crash below there is no pair, and the next start creates one.
        certificate.unlink(missing_ok=True)
        data_directories.write_private(key, certificate_primitives.key_pem(private))
        signed = _sign(private, name=name, address=address, moment=moment)
        data_directories.write_private(certificate, certificate_primitives.pem(signed))


def _is_good(certificate: Path, key: Path, names: set[str], moment: datetime.datetime) -> bool:
    try:
        stored = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = certificate_primitives.load_key(key)
    except (OSError, ValueError, TypeError):
        return False
    return (
        stored.public_key() == private.public_key()
        and certificate_primitives.names_of(stored) == names
        and stored.not_valid_after_utc > moment
    )


def _sign(
    private: ec.EllipticCurvePrivateKey, *, name: str, address: str, moment: datetime.datetime
) -> x509.Certificate:
    # A common name has at most 64 characters (RFC 5280, ub-common-name).
    subject = certificate_primitives.name(name[:64])
    return (
        certificate_primitives.builder(
            subject, subject, private.public_key(), now=moment, days=DAYS
        )
        .add_extension(certificate_primitives.alternatives((name, address)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(private, certificate_primitives.SHA256)
    )
