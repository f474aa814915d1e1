"""A serving certificate that the node signs itself, for API servers that do not check it.

Used by `virtual`. As the kubelet's without `serverTLSBootstrap`: kube-apiserver checks the
certificates of nodes only with --kubelet-certificate-authority. Kept on disk, so that a restart
shows the same one.
"""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from kilnwork.kit import clock, paths

DAYS = 365
_RENEW = datetime.timedelta(days=30)
_BACKDATED = datetime.timedelta(hours=1)


def ensure(certificate: Path, key: Path, *, name: str, address: str, now: clock.Clock) -> None:
    """Make the pair unless a good one is there; raises OSError."""
    moment = datetime.datetime.fromtimestamp(now.wall(), datetime.UTC)
    if not _is_good(certificate, key, {name, address}, moment + _RENEW):
        private = ec.generate_private_key(ec.SECP256R1())
        certificate.unlink(missing_ok=True)
        paths.write_private(key, key_pem(private))
        made = _sign(private, name=name, address=address, moment=moment)
        paths.write_private(certificate, made.public_bytes(serialization.Encoding.PEM))


def _is_good(certificate: Path, key: Path, names: set[str], moment: datetime.datetime) -> bool:
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
        shown = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return (
        found.public_key() == private.public_key()
        and {str(entry.value) for entry in shown} == names
        and found.not_valid_after_utc > moment
    )


def _sign(
    private: ec.EllipticCurvePrivateKey, *, name: str, address: str, moment: datetime.datetime
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name[:64])])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _BACKDATED)
        .not_valid_after(moment + datetime.timedelta(days=DAYS))
        .add_extension(alternatives(name, address), critical=False)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(private, hashes.SHA256())
    )


def alternatives(name: str, address: str) -> x509.SubjectAlternativeName:
    try:
        second: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        second = x509.DNSName(address)
    return x509.SubjectAlternativeName([x509.DNSName(name), second])


def key_pem(private: ec.EllipticCurvePrivateKey) -> bytes:
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
