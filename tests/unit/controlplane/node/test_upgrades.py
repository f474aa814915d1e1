"""Which way of carrying streams is agreed on, and what is refused."""

import pytest

from kilnwork.controlplane.node import streams_spdy, streams_websocket, upgrades
from kilnwork.kit import asgi

COMMAND = ["stdin", "stdout", "error"]
NEGOTIATE = "unable to upgrade: unable to negotiate protocol"
KNOWN = "[v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io]"
NO_HANDSHAKE = "not a WebSocket handshake of version 13"
SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
WEBSOCKET = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def raw(headers: dict[str, str], *more: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    pairs = [*headers.items(), *more]
    return [(name.lower().encode(), value.encode()) for name, value in pairs]


def agreement_of(found: upgrades.UpgradeAgreement | asgi.Refusal) -> tuple[list[str], type, str]:
    assert isinstance(found, upgrades.UpgradeAgreement), found
    assert found.head.endswith(b"\r\n\r\n")
    return found.head.decode().split("\r\n")[:-2], type(found.codec), found.version


def refusal_of(found: upgrades.UpgradeAgreement | asgi.Refusal) -> tuple[int, str]:
    assert isinstance(found, asgi.Refusal), found
    return found.status, found.message


def test_spdy_selects_first_supported_version_of_the_client() -> None:
    versions = [("X-Stream-Protocol-Version", f"v{n}.channel.k8s.io") for n in (5, 4, 3)]
    lines, codec, version = agreement_of(upgrades.remote_command(raw(SPDY, *versions), COMMAND))
    assert (codec, version) == (streams_spdy.SpdySession, "v4.channel.k8s.io")
    assert lines == [
        "HTTP/1.1 101 Switching Protocols",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
    ]


def test_versions_can_share_one_header() -> None:
    header = ("X-Stream-Protocol-Version", "v9.x, v2.channel.k8s.io")
    _, _, version = agreement_of(upgrades.remote_command(raw(SPDY, header), COMMAND))
    assert version == "v2.channel.k8s.io"


@pytest.mark.parametrize(
    ("version", "has_status"), [("v2", False), ("v3", False), ("v4", True), ("v5", True)]
)
def test_error_stream_carries_status_from_version_4_on(version: str, has_status: bool) -> None:  # noqa: FBT001
    found = upgrades.UpgradeAgreement(b"", streams_spdy.SpdySession(), f"{version}.channel.k8s.io")
    assert found.has_status is has_status


def test_websocket_handshake_matches_rfc_6455() -> None:
    header = ("Sec-WebSocket-Protocol", "v5.channel.k8s.io, v4.channel.k8s.io")
    lines, codec, version = agreement_of(upgrades.remote_command(raw(WEBSOCKET, header), COMMAND))
    assert (codec, version) == (streams_websocket.Channels, "v5.channel.k8s.io")
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in lines
    assert "Sec-WebSocket-Protocol: v5.channel.k8s.io" in lines


def test_missing_subprotocol_means_the_oldest() -> None:
    lines, codec, version = agreement_of(upgrades.remote_command(raw(WEBSOCKET), COMMAND))
    assert (codec, version) == (streams_websocket.Channels, "")
    assert not any(line.startswith("Sec-WebSocket-Protocol") for line in lines)


def test_port_forward_supports_spdy_tunnel_and_channels() -> None:
    spdy = raw(SPDY, ("X-Stream-Protocol-Version", "portforward.k8s.io"))
    assert agreement_of(upgrades.port_forward(spdy, []))[1:] == (
        streams_spdy.SpdySession,
        "portforward.k8s.io",
    )
    tunnel = raw(WEBSOCKET, ("Sec-WebSocket-Protocol", upgrades.TUNNEL))
    assert agreement_of(upgrades.port_forward(tunnel, []))[1:] == (
        streams_websocket.Tunnel,
        upgrades.TUNNEL,
    )
    channels = raw(WEBSOCKET, ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"))
    assert agreement_of(upgrades.port_forward(channels, [80]))[1] is streams_websocket.Channels
    assert refusal_of(upgrades.port_forward(channels, [])) == (
        400,
        'query parameter "port" is required',
    )


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ({}, 400, "Upgrade request required"),
        ({"Upgrade": "SPDY/3.1"}, 400, "Upgrade request required"),
        ({**SPDY, "Upgrade": "h2c"}, 400, "Upgrade request required"),
        (SPDY, 400, "unable to upgrade: X-Stream-Protocol-Version is required"),
        (
            {**SPDY, "X-Stream-Protocol-Version": "v9"},
            403,
            f"{NEGOTIATE}: client supports [v9], server accepts {KNOWN}",
        ),
        ({**WEBSOCKET, "Sec-WebSocket-Key": ""}, 400, NO_HANDSHAKE),
        (
            {**WEBSOCKET, "Sec-WebSocket-Version": "8"},
            400,
            "not a WebSocket handshake of version 13",
        ),
    ],
)
def test_invalid_upgrade_requests_are_refused(
    headers: dict[str, str], status: int, text: str
) -> None:
    assert refusal_of(upgrades.remote_command(raw(headers), COMMAND)) == (status, text)


def test_unknown_subprotocol_is_refused() -> None:
    found = upgrades.remote_command(raw(WEBSOCKET, ("Sec-WebSocket-Protocol", "soap")), COMMAND)
    assert refusal_of(found)[0] == 403
