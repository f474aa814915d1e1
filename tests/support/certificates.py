"""A temporary CA for tests of TLS."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kilnwork.kit import certificate_primitives


class Authority:
    """CA that signs certificates for 127.0.0.1 and for clients; all values are PEM."""

    def __init__(self) -> None:
        self._key = certificate_primitives.new_key()
        self._name = certificate_primitives.name("test CA")
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, certificate_primitives.SHA256)
        )

    @property
    def pem(self) -> str:
        return certificate_primitives.pem(self._certificate).decode()

    def issue(self, common_name: str, *names: str) -> tuple[str, str]:
        """Return certificate and key, valid for 127.0.0.1, these DNS names, and a client of this
        name.
        """
        key = certificate_primitives.new_key()
        certificate = (
            self._builder(certificate_primitives.name(common_name), key.public_key())
            .add_extension(
                certificate_primitives.alternatives(("127.0.0.1", *names)), critical=False
            )
            .sign(self._key, certificate_primitives.SHA256)
        )
        return certificate_primitives.pem(certificate).decode(), certificate_primitives.key_pem(
            key
        ).decode()

    def issue_file(self, common_name: str, directory: Path, *names: str) -> Path:
        """Write certificate and key into one file, as `ssl` expects them."""
        path = directory / f"{common_name}.pem"
        path.write_text("\n".join(self.issue(common_name, *names)))
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return certificate_primitives.builder(subject, self._name, key, now=now, days=1)
