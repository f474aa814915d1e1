"""Building blocks of X.509 certificates: P-256 keys, names, a builder, PEM.

Used by code that signs certificates or requests them: the API server, nodes, and the controller of
DataPonds. The caller decides what is signed, for how long and where it is stored.
"""

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import oid

_BACKDATED = datetime.timedelta(hours=1)
"""How far in the past a certificate begins to be valid, so that a client whose clock is slow
accepts it.
"""

SHA256 = hashes.SHA256()


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key from a PEM file. Raises OSError, and ValueError or TypeError if the file
    has no elliptic-curve key.
    """
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path} holds no elliptic-curve key")
    return key


def key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def name(common_name: str, *organisations: str) -> x509.Name:
    """Return the subject of a certificate; Kubernetes reads the organisations as groups."""
    parts = [x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, each) for each in organisations]
    return x509.Name([*parts, x509.NameAttribute(oid.NameOID.COMMON_NAME, common_name)])


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    now: datetime.datetime,
    days: float,
) -> x509.CertificateBuilder:
    """Return a builder of a certificate, which has only the key identifier as an extension."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def alternatives(names: Iterable[str]) -> x509.SubjectAlternativeName:
    """Return the subject alternative names for host names and IP addresses, each of its own
    type.
    """
    return x509.SubjectAlternativeName([_alternative(each) for each in names])


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def names_of(certificate: x509.Certificate) -> set[str]:
    """Return the subject alternative names of a certificate as texts."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(each.value) for each in found.value}
