"""Keys and certificates of a test cluster: one CA for the cluster, one for aggregated APIs.

Used by `cluster`. P-256 throughout but for service account tokens, whose key is RSA as kubeadm
makes it.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import oid

_DAYS = 3650
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """A CA in `folder`, whose files are NAME.crt and NAME.key; what it signs lies beside it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._place(folder, name, ec.generate_private_key(ec.SECP256R1()))
        made = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder, name, self._key, made)

    @classmethod
    def load(cls, folder: Path, name: str) -> "Authority":
        key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        found = cls.__new__(cls)
        found._place(folder, name, key)
        return found

    def _place(self, folder: Path, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])
        self._key = key
        self.certificate = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"

    def server(self, name: str, names: Sequence[str]) -> None:
        """NAME.crt and NAME.key for a server under host names and addresses."""
        self._leaf(name, x509.Name([]), oid.ExtendedKeyUsageOID.SERVER_AUTH, names=names)

    def client(self, name: str, *, user: str, groups: Sequence[str] = ()) -> None:
        """NAME.crt and NAME.key for a user of Kubernetes."""
        attributes = [x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, g) for g in groups]
        attributes.append(x509.NameAttribute(oid.NameOID.COMMON_NAME, user))
        self._leaf(name, x509.Name(attributes), oid.ExtendedKeyUsageOID.CLIENT_AUTH)

    def _leaf(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        *,
        names: Sequence[str] = (),
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if names:
            shown = x509.SubjectAlternativeName([_general(n) for n in names])
            builder = builder.add_extension(shown, critical=False)
        _write(self._folder, name, key, builder.sign(self._key, hashes.SHA256()))


def service_account_keys(folder: Path) -> None:
    """sa.key and sa.pub."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(folder / "sa.key", key)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "sa.pub").write_bytes(public)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    _write_key(folder / f"{name}.key", key)
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: _Key) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
