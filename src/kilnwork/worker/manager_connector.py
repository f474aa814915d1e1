"""Connections of the containers of an attempt's Pod to the manager, over TLS, with the Pod's token.

Used by `sidecar_result_blob` and `pod_call`, where the manager is on another machine.
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from kilnwork.api import manager_access
from kilnwork.kit import errors, tls_socket
from kilnwork.worker import settings

MIN_TIMEOUT_S = 1.0


class ManagerAccess(Protocol):
    """The settings in the Pod's environment that describe the manager and the attempt; see
    `sidecar_settings`.
    """

    @property
    def token_file(self) -> Path: ...
    @property
    def attempt(self) -> tuple[str, int, int]: ...
    @property
    def pod(self) -> str: ...
    @property
    def channel(self) -> str: ...
    @property
    def ca(self) -> str: ...


class ManagerConnector:
    """Connector to the manager over TLS, which verifies the manager's certificate by the CA that
    the Pod was given.

    Implements `manager_client.Connector`. `timeout_s`: returns the seconds that the next connection
    attempt may take. Raises ConfigurationError if the CA is not a certificate in PEM.
    """

    def __init__(self, given: ManagerAccess, timeout_s: Callable[[], float]) -> None:
        self._given = given
        self._timeout_s = timeout_s
        host, _, port = given.channel.removeprefix(settings.NETWORK).rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._context = _tls_context(given.ca)

    def connect(self) -> socket.socket:
        made = socket.create_connection(self._address, timeout=self._timeout_s())
        return tls_socket.wrap(self._context, made, server_name=manager_access.SERVER_NAME)

    def headers(self) -> Mapping[str, str]:
        """Return the HTTP headers that authenticate the Pod.

        The token is read each time, since the kubelet renews it.
        """
        given = self._given
        task, run, attempt = given.attempt
        return {
            "Host": manager_access.SERVER_NAME,
            manager_access.TOKEN_HEADER: given.token_file.read_text().strip(),
            manager_access.ATTEMPT_HEADER: f"{given.pod} {task}/{run}/{attempt}",
        }

    def refused(self) -> None:
        """Do nothing after a refusal, because there is no token other than that in the file."""


def _tls_context(ca: str) -> ssl.SSLContext:
    try:
        if not ca:  # Python would use the CAs of the system instead
            raise ValueError("it is empty")
        return ssl.create_default_context(cadata=ca)
    except (ValueError, ssl.SSLError) as error:
        raise errors.ConfigurationError(
            f"the manager's CA in KILN_CA cannot be used: {error}"
        ) from error
