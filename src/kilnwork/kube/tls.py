"""TLS contexts for the API server that a kubeconfig describes.

Used by `transport`, and by clients that do not use `transport`.
"""

import os
import ssl

from kilnwork.kit import errors
from kilnwork.kube import config, credentials


def context(
    settings: config.Config, credential: credentials.Credential | None = None
) -> ssl.SSLContext:
    """Return a TLS context for the server of `settings`.

    It trusts the CA of `settings` or, without one, the CAs of the system. It has the client
    certificate of `credential`; if `credential` is None, that of `settings`, if any. It checks
    certificate and host name of the server, unless `settings.verify` is false. Raises
    ConfigurationError for invalid PEM.
    """
    if credential is None:
        own = settings.client_cert_file or settings.client_cert
        credential = credentials.Credentials(settings).get() if own else credentials.Credential()
    try:
        context = ssl.create_default_context(
            # With neither of them, `ssl` loads the CAs of the system.
            cafile=str(settings.ca_file) if settings.ca_file and not settings.ca_data else None,
            cadata=settings.ca_data,
        )
        if credential.cert and credential.key:
            _load_pair(context, credential.cert, credential.key)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise errors.ConfigurationError(
            f"the CA or client certificate for {settings.server} is not usable PEM: {error}"
        ) from error
    if not settings.verify:
        # In this order: CERT_NONE is refused while host names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_pair(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Load a certificate and its key into a TLS context, through a file in memory.

    `ssl` takes them from files only; in this way the key is on no disk (memfd_create(2)).
    """
    # Python's memfd_create sets close-on-exec.
    with os.fdopen(os.memfd_create("client.pem"), "w") as file:
        file.write(cert + "\n" + key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
