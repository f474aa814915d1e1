"""TLS, and connections that break."""

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp.web
import pytest

from kilnwork.api import api_resources
from kilnwork.kit import clock, http_types
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client, config, errors, transport
from support import certificates, scripted_apiserver, tcp_proxy


@pytest.fixture
def authority() -> certificates.Authority:
    return certificates.Authority()


@pytest.fixture
async def tls_url(authority: certificates.Authority, tmp_path: Path) -> AsyncIterator[str]:
    """A TLS server that asks for a client certificate and responds with its name."""

    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        name = dict(pair[0] for pair in peer["subject"])["commonName"] if peer else ""
        return aiohttp.web.json_response({"metadata": {"name": name}})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem)
    context.load_cert_chain(authority.issue_file("server", tmp_path))
    context.verify_mode = ssl.CERT_OPTIONAL
    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(handler), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def _seen_as(settings: config.Config) -> str:
    async with client.Client(settings) as kube:
        found = await kube.get(api_resources.NODES, "n")
    return str(found["metadata"]["name"])


async def test_ca_is_taken_from_data_or_file(
    tls_url: str, authority: certificates.Authority, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text(authority.pem)
    assert await _seen_as(config.Config(server=tls_url, ca_data=authority.pem)) == ""
    assert await _seen_as(config.Config(server=tls_url, ca_file=ca_file)) == ""


async def test_strange_certificates_are_refused(tls_url: str) -> None:
    settings = config.Config(server=tls_url, ca_data=certificates.Authority().pem)
    with pytest.raises(errors.Untrusted, match=f"the certificate of {tls_url} is not trusted"):
        await _seen_as(settings)
    assert await _seen_as(dataclasses.replace(settings, verify=False)) == ""


async def test_a_name_that_is_not_in_the_certificate_is_refused(
    tls_url: str, authority: certificates.Authority
) -> None:
    with pytest.raises(errors.Untrusted):
        await _seen_as(
            config.Config(server=tls_url, ca_data=authority.pem, tls_server_name="example.org")
        )


async def test_client_certificate_is_presented(
    tls_url: str, authority: certificates.Authority
) -> None:
    cert, key = authority.issue("alice")
    settings = config.Config(
        server=tls_url, ca_data=authority.pem, client_cert=cert, client_key=key
    )
    assert await _seen_as(settings) == "alice"


def test_unusable_pem_is_a_configuration_error() -> None:
    for bad in (
        config.Config(server="https://h", ca_data="nonsense"),
        config.Config(server="https://h", ca_file=Path("/does/not/exist")),
        config.Config(server="https://h", client_cert="a", client_key="b"),
    ):
        with pytest.raises(kit_errors.ConfigurationError, match="not usable PEM"):
            client.Client(bad)


async def test_tls_to_a_plain_port_is_an_error_of_ours(
    stand: scripted_apiserver.ScriptedApiServer,
) -> None:
    stand.respond({})
    settings = config.Config(server=stand.url.replace("http:", "https:"))
    with pytest.raises(errors.KubeError):
        await _seen_as(settings)


async def test_truncated_response_is_unavailable() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(errors.Unavailable, match=f"cannot reach http://127.0.0.1:{port}"):
        await _seen_as(config.Config(server=f"http://127.0.0.1:{port}"))
    server.close()


async def test_proxy_of_the_kubeconfig_is_used(
    tls_url: str, authority: certificates.Authority
) -> None:
    cert, key = authority.issue("alice")
    async with tcp_proxy.HttpProxy() as proxy:
        settings = config.Config(
            server=tls_url,
            ca_data=authority.pem,
            client_cert=cert,
            client_key=key,
            proxy_url=f"http://127.0.0.1:{proxy.port}",
        )
        assert await _seen_as(settings) == "alice"
    assert proxy.asked == [tls_url.removeprefix("https://")]


async def test_a_redirect_is_not_followed(stand: scripted_apiserver.ScriptedApiServer) -> None:
    stand.respond({}, status=302, headers={"Location": "http://127.0.0.1:1/elsewhere"})
    with pytest.raises(errors.ApiError) as caught:
        await _seen_as(config.Config(server=stand.url, token="secret"))
    assert caught.value.status == 302
    assert len(stand.asked) == 1


async def test_warnings_are_passed_to_the_callback(
    stand: scripted_apiserver.ScriptedApiServer,
) -> None:
    stand.respond({}, headers={"Warning": '299 - "unknown field \\"spec.foo\\""'})
    heard: list[str] = []
    async with transport.Transport(
        config.Config(server=stand.url),
        user_agent="test",
        time=clock.SystemClock(),
        on_warning=heard.append,
    ) as http:
        await http.send(http_types.ClientRequest(method="GET", path="/"))
    assert heard == ['unknown field "spec.foo"']
