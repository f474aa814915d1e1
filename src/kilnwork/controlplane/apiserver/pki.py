"""Certificates of one data directory: its own CA and everything that the CA signs.

Used by the server (its TLS certificate, and its client certificate for the kubelet API), by the
local node, by a manager that runs in Kubernetes, and by `tokens` (the signing key of
service-account tokens). Files are `DIR/pki/*.{crt,key}`, mode 0600, replaced atomically; `prepare`
renews certificates with less than 30 days left. This is not a general CA: it revokes nothing, and
it signs no certificate requests.
"""

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from kilnwork.kit import certificate_primitives, data_directories, errors
from kilnwork.kit import clock as clocks

RENEW_BEFORE_S = 30 * 86_400
"""Certificates with less time left are renewed at start, so one restart a month is enough."""

CA_DAYS = 3650
LEAF_DAYS = 365

SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "127.0.0.1",
    "::1",
)


class KeyPair(msgspec.Struct, frozen=True):
    """Paths of the PEM files of a certificate and of its private key."""

    certificate: Path
    key: Path

    @property
    def exists(self) -> bool:
        """Return whether both files exist."""
        return self.certificate.exists() and self.key.exists()


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Required contents of a leaf certificate."""

    subject: x509.Name
    names: tuple[str, ...] = ()
    usages: tuple[x509.ObjectIdentifier, ...] = ()


_SERVER_AUTH = oid.ExtendedKeyUsageOID.SERVER_AUTH
_CLIENT_AUTH = oid.ExtendedKeyUsageOID.CLIENT_AUTH


class Pki:
    """The certificates in one directory. Call `prepare` before you use the paths."""

    def __init__(
        self, directory: Path, *, clock: clocks.Clock, server_names: Sequence[str] = ()
    ) -> None:
        self._server_names = (*SERVER_NAMES, *server_names)
        self._directory = directory
        self._clock = clock
        self._ca = self._pair("ca")
        self.ca_certificate = self._ca.certificate
        self.server = self._pair("server")
        self.kubelet_client = self._pair("kubelet-client")
        """Client certificate of the API server for the nodes (`system:masters`)."""
        self.service_account_key = directory / "sa.key"

    def prepare_ca(self) -> None:
        """Create or renew only the CA. Raises ConfigurationError when its files cannot be used."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory.chmod(0o700)
        self._prepare_ca()

    def prepare(self) -> None:
        """Create or renew all certificates. Raises ConfigurationError if the CA is unusable."""
        self.prepare_ca()
        self._prepare_leaf(
            self.server,
            _Wanted(
                subject=certificate_primitives.name("kube-apiserver"),
                names=self._server_names,
                usages=(_SERVER_AUTH,),
            ),
        )
        self._prepare_leaf(
            self.kubelet_client,
            _Wanted(
                subject=certificate_primitives.name(
                    "kube-apiserver-kubelet-client", "system:masters"
                ),
                usages=(_CLIENT_AUTH,),
            ),
        )
        if not self.service_account_key.exists():
            data_directories.write_private(
                self.service_account_key,
                certificate_primitives.key_pem(certificate_primitives.new_key()),
                durable=True,
            )

    def node(self, name: str, *, addresses: Sequence[str] = ()) -> KeyPair:
        """Return the certificate of node `name`, for its kubelet API and for its own requests.

        It is created or renewed if needed. As a client it is `system:node:NAME` in group
        `system:nodes`. `addresses` are names or IP addresses besides the loopback ones.
        """
        pair = self._pair(f"node-{name}")
        names = tuple(dict.fromkeys((name, "localhost", "127.0.0.1", "::1", *addresses)))
        wanted = _Wanted(
            subject=certificate_primitives.name(f"system:node:{name}", "system:nodes"),
            names=names,
            usages=(_SERVER_AUTH, _CLIENT_AUTH),
        )
        self._prepare_leaf(pair, wanted)
        return pair

    def manager(self, names: Sequence[str]) -> KeyPair:
        """Return the server certificate of a manager that runs in Kubernetes; create or renew it if
        needed.

        The first of `names` is its subject. Such a manager uses no other certificate of this
        directory, so `prepare_ca` is enough for it.
        """
        pair = self._pair("manager")
        wanted = _Wanted(
            subject=certificate_primitives.name(names[0]),
            names=tuple(names),
            usages=(_SERVER_AUTH,),
        )
        self._prepare_leaf(pair, wanted)
        return pair

    def ca_data(self) -> bytes:
        """Return the CA certificate in PEM, for kubeconfigs and service-account files."""
        return self.ca_certificate.read_bytes()

    def to_nodes(self) -> ssl.SSLContext:
        """Return the TLS context of the API server as a client of nodes (mutual TLS)."""
        # With `cafile`, the CAs of the system are not trusted.
        context = ssl.create_default_context(cafile=str(self.ca_certificate))
        pair = self.kubelet_client
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def signing_key(self) -> ec.EllipticCurvePrivateKey:
        """Return the signing key of service-account tokens."""
        try:
            return certificate_primitives.load_key(self.service_account_key)
        except (ValueError, TypeError) as error:
            raise errors.ConfigurationError(
                f"the key {self.service_account_key} cannot be read; remove that file to get a "
                "new one (tokens of service accounts that are in use end with it)"
            ) from error

    def _pair(self, name: str) -> KeyPair:
        return KeyPair(self._directory / f"{name}.crt", self._directory / f"{name}.key")

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._clock.wall(), datetime.UTC)

    def _prepare_ca(self) -> None:
        if not self._ca.certificate.exists():
            self._make_ca()
            return
        certificate, key = self._load_ca()
        # This happens when only one of the two files was restored or replaced.
        if certificate.public_key() != key.public_key():
            raise errors.ConfigurationError(
                f"{self._ca.key} does not belong to {self._ca.certificate}; "
                f"remove {self._directory} to get new certificates"
            )
        # The new CA has another key, so `_prepare_leaf` replaces all leaf certificates too.
        if self._expires_soon(certificate):
            self._make_ca()

    def _make_ca(self) -> None:
        key, now = certificate_primitives.new_key(), self._now()
        name = certificate_primitives.name("kilnwork")
        builder = certificate_primitives.builder(
            name, name, key.public_key(), now=now, days=CA_DAYS
        )
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(
            certificate_primitives.key_usage(signs_certificates=True), critical=True
        )
        self._write(self._ca, key, builder.sign(key, certificate_primitives.SHA256))

    def _load_ca(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        try:
            certificate = x509.load_pem_x509_certificate(self._ca.certificate.read_bytes())
            return certificate, certificate_primitives.load_key(self._ca.key)
        except (OSError, ValueError, TypeError) as error:
            raise errors.ConfigurationError(
                f"the CA in {self._directory} cannot be read ({error}); "
                "remove that directory to get new certificates"
            ) from error

    def _prepare_leaf(self, pair: KeyPair, wanted: _Wanted) -> None:
        ca_certificate, ca_key = self._load_ca()
        if self._is_good(pair, wanted, ca_certificate):
            return
        key, now = certificate_primitives.new_key(), self._now()
        builder = certificate_primitives.builder(
            wanted.subject, ca_certificate.subject, key.public_key(), now=now, days=LEAF_DAYS
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(
            certificate_primitives.key_usage(signs_certificates=False), critical=True
        )
        builder = builder.add_extension(x509.ExtendedKeyUsage(wanted.usages), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        builder = builder.add_extension(authority, critical=False)
        if wanted.names:
            builder = builder.add_extension(
                certificate_primitives.alternatives(wanted.names), critical=False
            )
        self._write(pair, key, builder.sign(ca_key, certificate_primitives.SHA256))

    def _is_good(self, pair: KeyPair, wanted: _Wanted, ca: x509.Certificate) -> bool:
        if not pair.exists:
            return False
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
            key = certificate_primitives.load_key(pair.key)
            # This also fails if the CA was replaced after it had issued the certificate.
            certificate.verify_directly_issued_by(ca)
        except Exception:  # noqa: BLE001 - whatever is wrong with the file, a new one replaces it
            return False
        return (
            certificate.public_key() == key.public_key()
            and certificate.subject == wanted.subject
            and certificate_primitives.names_of(certificate) == set(wanted.names)
            and not self._expires_soon(certificate)
        )

    def _expires_soon(self, certificate: x509.Certificate) -> bool:
        left = certificate.not_valid_after_utc - self._now()
        return left.total_seconds() < RENEW_BEFORE_S

    def _write(
        self, pair: KeyPair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        """Write a key and its certificate, the certificate last.

        After a crash between the two writes, the next start replaces the pair.
        """
        pair.certificate.unlink(missing_ok=True)
        data_directories.write_private(pair.key, certificate_primitives.key_pem(key), durable=True)
        data_directories.write_private(
            pair.certificate, certificate_primitives.pem(certificate), durable=True
        )
