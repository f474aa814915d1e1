"""The values of Secrets for requests, only of Secrets that allow it, and only for the hosts that
they name.

Used by `attempt`. Secrets are read again for each attempt, so that a change applies to the next
one.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Protocol
from urllib import parse

from kilnwork.api import http_task, reasons
from kilnwork.executors.http import errors
from kilnwork.kube import errors as kube_errors

USE_LABEL, USE = "kilnwork.dev/use", "http"
HOSTS = "kilnwork.dev/http-hosts"
"""Annotation: hosts that may get the values, separated by commas: `api.example.com`,
`*.example.com`, either with `:PORT`."""


class SecretReader(Protocol):
    """Port that reads Secrets from the API server."""

    async def secret(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a Secret as JSON. Raises KubeError."""
        ...


class SecretValues:
    """The Secrets that a request names. `revealed`: all values that were returned."""

    def __init__(self, secrets: Mapping[str, Mapping[str, Any]], host: str, port: int) -> None:
        self.revealed: set[str] = set()
        self._secrets = secrets
        self._host, self._port = host, port

    def value(self, ref: http_task.SecretRef) -> str:
        """Return the value of one key of a Secret as text. Raises `AttemptFailed`."""
        try:
            value = self.data(ref.name, ref.key).rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise _refused(
                f"key {ref.key} of Secret {ref.name} is no UTF-8 text, as a value in a request is"
            ) from error
        if any(character in value for character in "\r\n\0"):
            raise _refused(f"key {ref.key} of Secret {ref.name} has a line break or NUL in it")
        self.revealed.add(value)
        return value

    def data(self, name: str, key: str) -> bytes:
        """Return the bytes of one key of a Secret. Raises `AttemptFailed`."""
        secret = self._secrets[name]
        metadata = secret.get("metadata") or {}
        if (metadata.get("labels") or {}).get(USE_LABEL) != USE:
            raise _refused(f"Secret {name} is not labelled {USE_LABEL}={USE}")
        hosts = (metadata.get("annotations") or {}).get(HOSTS, "")
        if not is_listed(self._host, self._port, hosts):
            raise _refused(f"Secret {name} does not name {self._host} in its annotation {HOSTS}")
        found = (secret.get("data") or {}).get(key)
        if found is None:
            raise _refused(f"Secret {name} has no key {key}")
        try:
            return base64.b64decode(found, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _refused(f"key {key} of Secret {name} is not base64") from error


async def read(
    reader: SecretReader,
    namespace: str,
    template: http_task.HttpTemplate,
    *more: http_task.HttpRequest,
) -> SecretValues:
    """Read all Secrets that are named by a request, and by `more` requests to the same host.

    Raises `AttemptFailed`.
    """
    tls = template.tls
    names = {
        one.secret_ref.name
        for request in (template.request, *more)
        for given in (request.headers, request.query_string, request.cookies)
        for one in given
        if one.secret_ref is not None
    }
    if tls.client_certificate_secret:
        names.add(tls.client_certificate_secret)
    if not names:
        return SecretValues({}, "", 0)
    found: dict[str, Mapping[str, Any]] = {}
    for name in sorted(names):
        try:
            found[name] = await reader.secret(namespace, name)
        except kube_errors.NotFound as error:
            raise _refused(f"there is no Secret {name}") from error
        except kube_errors.KubeError as error:
            raise errors.AttemptFailed(
                reasons.Reason.SECRET_REFUSED,
                f"Secret {name} cannot be read: {error}",
                is_loss=True,
            ) from error
    parts = parse.urlsplit(template.request.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return SecretValues(found, parts.hostname or "", port)


def is_listed(host: str, port: int, hosts: str) -> bool:
    """Return whether the annotation `hosts` of a Secret names the host and port."""
    for text in hosts.split(","):
        name, _, wanted = text.strip().lower().partition(":")
        if wanted and wanted != str(port):
            continue
        if name == host.lower() or (name.startswith("*.") and host.lower().endswith(name[1:])):
            return True
    return False


def _refused(message: str) -> errors.AttemptFailed:
    return errors.AttemptFailed(reasons.Reason.SECRET_REFUSED, message)
