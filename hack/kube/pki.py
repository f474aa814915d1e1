"""Keys and certificates of a test cluster: one CA for the cluster, one for aggregated APIs.

Used by `cluster`. P-256 throughout but for service account tokens, whose key is RSA as kubeadm
makes it.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import oid

from kilnwork.kit import certificate_primitives

_DAYS = 3650
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """A CA in `directory`, whose files are NAME.crt and NAME.key, beside the certificates that it
    signs.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._place(directory, name, certificate_primitives.new_key())
        made = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(certificate_primitives.key_usage(signs_certificates=True), critical=True)
            .sign(self._key, certificate_primitives.SHA256)
        )
        _write(directory, name, self._key, made)

    @classmethod
    def load(cls, directory: Path, name: str) -> "Authority":
        found = cls.__new__(cls)
        found._place(directory, name, certificate_primitives.load_key(directory / f"{name}.key"))
        return found

    def _place(self, directory: Path, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        self._directory = directory
        self._name = certificate_primitives.name(name)
        self._key = key
        self.certificate = directory / f"{name}.crt"
        self.key = directory / f"{name}.key"

    def server(self, name: str, names: Sequence[str]) -> None:
        """Write NAME.crt and NAME.key for a server under host names and addresses."""
        self._leaf(name, x509.Name([]), oid.ExtendedKeyUsageOID.SERVER_AUTH, names=names)

    def client(self, name: str, *, user: str, groups: Sequence[str] = ()) -> None:
        """Write NAME.crt and NAME.key for a user of Kubernetes."""
        subject = certificate_primitives.name(user, *groups)
        self._leaf(name, subject, oid.ExtendedKeyUsageOID.CLIENT_AUTH)

    def _leaf(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        *,
        names: Sequence[str] = (),
    ) -> None:
        key = certificate_primitives.new_key()
        builder = (
            _builder(subject, self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                certificate_primitives.key_usage(signs_certificates=False), critical=True
            )
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if names:
            builder = builder.add_extension(
                certificate_primitives.alternatives(names), critical=False
            )
        _write(self._directory, name, key, builder.sign(self._key, certificate_primitives.SHA256))


def service_account_keys(directory: Path) -> None:
    """Write sa.key and sa.pub."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(directory / "sa.key", key)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (directory / "sa.pub").write_bytes(public)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return certificate_primitives.builder(subject, issuer, key.public_key(), now=now, days=_DAYS)


def _write(
    directory: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    _write_key(directory / f"{name}.key", key)
    (directory / f"{name}.crt").write_bytes(certificate_primitives.pem(certificate))


def _write_key(path: Path, key: _Key) -> None:
    path.touch(mode=0o600)
    path.write_bytes(certificate_primitives.key_pem(key))
