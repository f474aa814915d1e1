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


def test_refusal_changes_neither_headers_nor_token(
    tmp_path: Path, authority: certificates.Authority
) -> None:
    given = access(tmp_path, authority)
    made = manager_connector.ManagerConnector(given, lambda: 1.0)
    before = made.headers()
    made.refused()
    assert made.headers() == before
    assert given.token_file.read_text() == "secret\n"


def test_headers_need_the_token_file(tmp_path: Path, authority: certificates.Authority) -> None:
    given = access(tmp_path, authority)
    made = manager_connector.ManagerConnector(given, lambda: 1.0)
    given.token_file.unlink()
    with pytest.raises(FileNotFoundError):
        made.headers()


def test_minimum_timeout_is_a_second() -> None:
    assert manager_connector.MIN_TIMEOUT_S == 1.0


@pytest.mark.parametrize(("ca", "cause"), [("", "it is empty$"), ("\n", ""), ("no PEM", "")])
def test_ca_without_a_certificate_is_refused(
    tmp_path: Path, authority: certificates.Authority, ca: str, cause: str
) -> None:
    given = access(tmp_path, authority)._replace(ca=ca)
    expected = f"^the manager's CA in KILN_CA cannot be used: {cause}"
    with pytest.raises(errors.ConfigurationError, match=expected) as caught:
        manager_connector.ManagerConnector(given, lambda: 1.0)
    assert isinstance(caught.value.__cause__, ValueError | ssl.SSLError)


@pytest.mark.parametrize("channel", ["tls://127.0.0.1", "tls://127.0.0.1:", "tls://127.0.0.1:x"])
def test_channel_without_a_port_is_refused(
    tmp_path: Path, authority: certificates.Authority, channel: str
) -> None:
    given = access(tmp_path, authority)._replace(channel=channel)
    with pytest.raises(ValueError, match="invalid literal"):
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
        listener.settimeout(10)

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


def test_connection_goes_to_host_and_port_of_the_channel(
    tmp_path: Path, authority: certificates.Authority
) -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        listener.settimeout(10)
        peers: list[str] = []

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as accepted:
                peers.append(accepted.getsockname()[0])
                accepted.recv(1)  # the first byte of the handshake

        server = threading.Thread(target=serve)
        server.start()
        channel = f"tls://127.0.0.2:{listener.getsockname()[1]}"
        given = access(tmp_path, authority)._replace(channel=channel)
        made = manager_connector.ManagerConnector(given, lambda: 5.0)
        with pytest.raises(OSError, match=r"(?i)eof|reset"):
            made.connect()
        server.join()
    assert peers == ["127.0.0.2"]


def test_ipv6_address_of_the_channel_is_used_without_brackets(
    tmp_path: Path, authority: certificates.Authority
) -> None:
    given = access(tmp_path, authority)._replace(channel="tls://[::1]:1")
    made = manager_connector.ManagerConnector(given, lambda: 1.0)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - refused, or there is no IPv6 here
        made.connect()
    assert not isinstance(caught.value, socket.gaierror)


def test_manager_that_does_not_listen_is_an_error(
    tmp_path: Path, authority: certificates.Authority
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    made = manager_connector.ManagerConnector(access(tmp_path, authority, port), lambda: 1.0)
    with pytest.raises(ConnectionRefusedError):
        made.connect()


def test_each_connection_has_the_timeout_of_its_moment(
    tmp_path: Path, authority: certificates.Authority
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it accepts and says nothing
        timeouts = iter((0.01, 0.02))
        given = access(tmp_path, authority, listener.getsockname()[1])
        made = manager_connector.ManagerConnector(given, lambda: next(timeouts))
        for _ in range(2):
            with pytest.raises(TimeoutError):
                made.connect()
    assert list(timeouts) == []
