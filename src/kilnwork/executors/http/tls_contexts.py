"""TLS contexts for requests, with the CAs to trust and the client certificate.

Used by `attempt`. Contexts are cached, since loading the system's CAs takes 20 ms.
"""

import ssl
import tempfile

from kilnwork.api import http_task, reasons
from kilnwork.executors.http import errors, secret_values

MAX_CONTEXTS = 64


class TlsContexts:
    """A cache of TLS contexts, by their settings."""

    def __init__(self) -> None:
        self._made: dict[tuple[bool, str, bytes], ssl.SSLContext] = {}

    def context(
        self, given: http_task.Tls, values: secret_values.SecretValues, field: str
    ) -> ssl.SSLContext:
        """Return the TLS context for a request.

        `field`: path of the request's TLS settings, for error messages.
        Raises `AttemptFailed`.
        """
        pair = b""
        if name := given.client_certificate_secret:
            pair = values.data(name, "tls.crt") + b"\n" + values.data(name, "tls.key")
        key = given.insecure_skip_verify, given.ca_bundle, pair
        if key not in self._made:
            if len(self._made) >= MAX_CONTEXTS:
                self._made.clear()
            self._made[key] = _make(given, pair, field)
        return self._made[key]


def _make(given: http_task.Tls, pair: bytes, field: str) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cadata=given.ca_bundle or None)
        if given.insecure_skip_verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if pair:
            with tempfile.NamedTemporaryFile() as file:  # ssl reads certificates from files only
                file.write(pair)
                file.flush()
                made.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise errors.AttemptFailed(
            reasons.Reason.INVALID_SPEC, f"{field} cannot be used: {error}"
        ) from error
    return made
