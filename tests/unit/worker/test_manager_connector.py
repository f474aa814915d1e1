"""How a sidecar reaches the manager, and who it says it is."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from kilnwork.api import manager_access
from kilnwork.kit import errors
from kilnwork.worker import manager_connector
from support import certificates


class Access(NamedTuple):
    token_file: Path
    channel: str
    ca: str
    attempt: tuple[str, int, int] = ("018f3a5e-0000-7000-8000-000000000001", 2, 3)
    pod: str = "p"


@pytest.fixture
def authority() -> certificates.Authority:
    return certificates.Authority()


def access(directory: Path, authority: certificates.Authority, port: int = 7445) -> Access:
    token = directory / "token"
    token.write_text("secret\n")
    return Access(token, f"tls://127.0.0.1:{port}", authority.pem)


def test_headers_name_the_attempt_and_its_pod(
    tmp_path: Path, authority: certificates.Authority
) -> None:
    made = manager_connector.ManagerConnector(access(tmp_path, authority), lambda: 1.0)
    assert made.headers() == {
        "Host": manager_access.SERVER_NAME,
        manager_access.TOKEN_HEADER: "secret",
        manager_access.ATTEMPT_HEADER: "p 018f3a5e-0000-7000-8000-000000000001/2/3",
    }


def test_renewed_token_is_read_again(tmp_path: Path, authority: certificates.Authority) -> None:
    given = access(tmp_path, authority)
    made = manager_connector.ManagerConnector(given, lambda: 1.0)
    given.token_file.write_text("renewed")
    assert made.headers()[manager_access.TOKEN_HEADER] == "renewed"


@pytest.mark.parametrize("ca", ["", "\n", "no PEM"])
def test_ca_without_a_certificate_is_refused(
    tmp_path: Path, authority: certificates.Authority, ca: str
) -> None:
    given = access(tmp_path, authority)._replace(ca=ca)
    with pytest.raises(errors.ConfigurationError, match="KILN_CA"):
        manager_connector.ManagerConnector(given, lambda: 1.0)


@pytest.mark.parametrize(
    ("names", "is_trusted"), [((manager_access.SERVER_NAME,), True), (("another",), False)]
)
def test_manager_is_verified_by_ca_and_name(
    tmp_path: Path, authority: certificates.Authority, names: tuple[str, ...], *, is_trusted: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue_file("server", tmp_path, *names))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(listener.accept()[0], server_side=True) as accepted,
            ):
                accepted.sendall(b"hello")

        server = threading.Thread(target=serve)
        server.start()
        given = access(tmp_path, authority, listener.getsockname()[1])
        made = manager_connector.ManagerConnector(given, lambda: 5.0)
        try:
            if is_trusted:
                with contextlib.closing(made.connect()) as connected:
                    assert connected.recv(64) == b"hello"
                    assert connected.gettimeout() == 5.0
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    made.connect()
        finally:
            server.join()
