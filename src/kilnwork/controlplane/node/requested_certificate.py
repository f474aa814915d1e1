"""Serving certificate that the cluster signs (signer `kubernetes.io/kubelet-serving`).

Used by `virtual_node` when the user asks for it; corresponds to the kubelet's `serverTLSBootstrap`.
Until a user has approved the request (`kubectl certificate approve`), the node presents the
certificate of `own_certificate`. Only a node's own identity (`system:node:NAME`) may request a
certificate. A new one is requested before the present one expires.
"""

import asyncio
import base64
import datetime
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kilnwork.api import api_resources, meta
from kilnwork.kit import certificate_primitives, clock, data_directories
from kilnwork.kube import client, errors

log = logging.getLogger(__name__)

SIGNER = "kubernetes.io/kubelet-serving"
LOOK_S = 5.0
AGAIN_S = 300.0
"""Delay after a refusal or an error, by which an administrator may have granted the permission."""

RENEW_AT = 0.8

_REQUESTS = api_resources.Resource(
    group="certificates.k8s.io",
    version="v1",
    kind="CertificateSigningRequest",
    plural="certificatesigningrequests",
    singular="certificatesigningrequest",
    namespaced=False,
)


class CertificateRefused(Exception):
    """The request for a certificate was denied or could not be signed."""


class Requester(NamedTuple):
    """Requests certificates for a node."""

    kube: client.Client
    name: str
    address: str
    certificate: Path
    key: Path
    on_issued: Callable[[], None]
    """Called when the two files have changed."""
    now: clock.Clock

    async def keep(self) -> None:
        """Get a certificate and renew it, until cancelled."""
        await asyncio.sleep(self._left_s())
        while True:
            try:
                issued = await self._request()
            except (errors.KubeError, CertificateRefused) as error:
                facts = {"node": self.name, "error": str(error)}
                log.warning("no serving certificate from the cluster", extra=facts)
                await asyncio.sleep(AGAIN_S)
                continue
            self.on_issued()
            log.info("serving certificate issued", extra={"node": self.name})
            await asyncio.sleep(renewal_s(issued, self.now.wall()))

    def _left_s(self) -> float:
        """Return the seconds until the certificate must be renewed; 0 if it is self-signed."""
        stored = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        return 0.0 if stored.issuer == stored.subject else renewal_s(stored, self.now.wall())

    async def _request(self) -> x509.Certificate:
        """Create a request, wait until it is approved, and store the certificate."""
        private = certificate_primitives.new_key()
        request = await self.kube.create(_REQUESTS, self._body(private))
        name = request["metadata"]["name"]
        log.info("approve it: kubectl certificate approve", extra={"request": name})
        while not (text := _issued(request)):
            await asyncio.sleep(LOOK_S)
            # The cluster deletes a request that stays pending. `keep` then creates another.
            request = await self.kube.get(_REQUESTS, name)
        # After a crash between the two writes, key and certificate do not match, and
        # `own_certificate` replaces them.
        data_directories.write_private(self.key, certificate_primitives.key_pem(private))
        data_directories.write_private(self.certificate, text)
        return x509.load_pem_x509_certificate(text)

    def _body(self, private: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
        subject = certificate_primitives.name(f"system:node:{self.name}", "system:nodes")
        names = certificate_primitives.alternatives((self.name, self.address))
        built = x509.CertificateSigningRequestBuilder().subject_name(subject)
        signed = built.add_extension(names, critical=False).sign(
            private, certificate_primitives.SHA256
        )
        pem = signed.public_bytes(serialization.Encoding.PEM)
        return {
            "apiVersion": _REQUESTS.api_version,
            "kind": _REQUESTS.kind,
            "metadata": {"generateName": "csr-"},
            "spec": {
                "request": base64.b64encode(pem).decode(),
                "signerName": SIGNER,
                "usages": ["digital signature", "server auth"],
            },
        }


def _issued(request: meta.JsonObject) -> bytes:
    """Return the certificate in PEM, or b"" while there is none. Raises CertificateRefused."""
    status = request.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("Denied", "Failed"):
            raise CertificateRefused(
                f"{condition['type']}: {condition.get('message') or 'no reason given'}"
            )
    return base64.b64decode(status.get("certificate") or "")


def renewal_s(issued: x509.Certificate, now: float) -> float:
    """Return the seconds until a new certificate must be requested."""
    begins, ends = issued.not_valid_before_utc, issued.not_valid_after_utc
    at = begins + (ends - begins) * RENEW_AT
    return max(LOOK_S, (at - datetime.datetime.fromtimestamp(now, datetime.UTC)).total_seconds())
