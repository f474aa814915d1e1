"""Negotiation of stream protocols: the HTTP part of exec, attach and port-forward.

Does no I/O. Works like the kubelet (k8s.io/apimachinery httpstream and wsstream): SPDY with the
version of the streams in `X-Stream-Protocol-Version`, or WebSocket with the version as a
subprotocol. It also supports the protocols that kube-apiserver translates for a kubelet and that
our API server passes on: `v5.channel.k8s.io`, and port-forward's SPDY inside a WebSocket
(KEP-4006). Used by `kubelet_streaming`.
"""

import base64
import hashlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from kilnwork.controlplane.node import streams_interface, streams_spdy, streams_websocket
from kilnwork.kit import asgi

SPDY = "SPDY/3.1"
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_REMOTE_COMMAND = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io")
_WEBSOCKET = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
)
_PORT_FORWARD = ("portforward.k8s.io",)
_PORT_WEBSOCKET = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")
TUNNEL = f"{SPDY}+portforward.k8s.io"
CHANNELS = (
    streams_interface.STDIN,
    streams_interface.STDOUT,
    streams_interface.STDERR,
    streams_interface.ERROR,
    streams_interface.RESIZE,
)
"""Kinds of streams. The index of a kind is its channel number in the WebSocket protocols."""


class UpgradeAgreement(NamedTuple):
    """Result of a negotiation."""

    head: bytes
    """Head of the response."""
    codec: streams_interface.Codec
    version: str
    """Protocol version of the streams."""

    @property
    def has_status(self) -> bool:
        """Return whether the error stream carries a JSON Status.

        Before version 4 it carried plain text.
        """
        return self.version.startswith(("v4.", "v5."))


def remote_command(
    headers: asgi.Headers, wanted: Collection[str]
) -> UpgradeAgreement | asgi.Refusal:
    """Negotiate exec or attach. `wanted` are the requested streams, including `error`."""
    offer = _ClientOffer(headers)
    if offer.websocket:
        opened = [{streams_interface.TYPE: name} if name in wanted else None for name in CHANNELS]
        return offer.channels(_WEBSOCKET, opened)
    return offer.spdy(_REMOTE_COMMAND)


def port_forward(headers: asgi.Headers, ports: Sequence[int]) -> UpgradeAgreement | asgi.Refusal:
    """Negotiate port-forward.

    `ports` are the ports in the query, which only WebSocket channels need.
    """
    offer = _ClientOffer(headers)
    if TUNNEL in offer.subprotocols:
        return offer.switch_websocket(streams_websocket.Tunnel(), TUNNEL)
    if not offer.websocket:
        return offer.spdy(_PORT_FORWARD)
    if not ports:
        return asgi.Refusal(400, 'query parameter "port" is required')
    opened = [
        {streams_interface.TYPE: kind, "port": str(port), "requestid": str(number)}
        for number, port in enumerate(ports)
        for kind in (streams_interface.DATA, streams_interface.ERROR)
    ]
    return offer.channels(_PORT_WEBSOCKET, opened)


class _ClientOffer:
    """The protocols that the headers of one request offer."""

    def __init__(self, headers: asgi.Headers) -> None:
        self._headers: dict[str, list[str]] = {}
        for name, value in headers:
            values = self._headers.setdefault(name.decode("latin-1").lower(), [])
            values += [part.strip() for part in value.decode("latin-1").split(",") if part.strip()]
        upgrades = [value.lower() for value in self._all("upgrade")]
        # The header Connection is a list, such as `keep-alive, Upgrade`.
        upgrade = any("upgrade" in value.lower() for value in self._all("connection"))
        self.websocket = upgrade and "websocket" in upgrades
        self._is_spdy = upgrade and SPDY.lower() in upgrades
        self.subprotocols = self._all("sec-websocket-protocol") if self.websocket else []

    def _all(self, name: str) -> list[str]:
        return self._headers.get(name, [])

    def spdy(self, supported: Sequence[str]) -> UpgradeAgreement | asgi.Refusal:
        """Agree on the first of the client's versions that is supported."""
        if not self._is_spdy:
            return asgi.Refusal(400, "Upgrade request required")
        versions = self._all("x-stream-protocol-version")
        if not versions:
            return asgi.Refusal(400, "unable to upgrade: X-Stream-Protocol-Version is required")
        version = next((v for v in versions if v in supported), None)
        if version is None:
            text = (
                "unable to upgrade: unable to negotiate protocol: "
                f"client supports [{' '.join(versions)}], server accepts [{' '.join(supported)}]"
            )
            # 403 and this header come from Handshake in apimachinery's httpstream.
            accepted = [(b"x-accepted-stream-protocol-versions", s.encode()) for s in supported]
            return asgi.Refusal(403, text, tuple(accepted))
        head = _head(SPDY, {"X-Stream-Protocol-Version": version})
        return UpgradeAgreement(head, streams_spdy.SpdySession(), version)

    def channels(
        self, supported: Sequence[str], opened: Sequence[dict[str, str] | None]
    ) -> UpgradeAgreement | asgi.Refusal:
        """Agree on the first of the client's subprotocols that is supported.

        A client that offers none gets the oldest.
        """
        chosen = next((s for s in self.subprotocols if s in supported), "")
        if self.subprotocols and not chosen:
            text = (
                f"requested protocol(s) are not supported: [{' '.join(self.subprotocols)}]; "
                f"supports [{' '.join(supported)}]"
            )
            return asgi.Refusal(403, text)
        return self.switch_websocket(streams_websocket.Channels(chosen, opened), chosen)

    def switch_websocket(
        self, codec: streams_interface.Codec, subprotocol: str
    ) -> UpgradeAgreement | asgi.Refusal:
        """Return the server's part of the handshake (RFC 6455 §4.2)."""
        keys = self._all("sec-websocket-key")
        if len(keys) != 1 or self._all("sec-websocket-version") != ["13"]:
            supported = ((b"sec-websocket-version", b"13"),)
            return asgi.Refusal(400, "not a WebSocket handshake of version 13", supported)
        # RFC 6455 prescribes SHA-1; no security depends on it.
        digest = hashlib.sha1((keys[0] + _GUID).encode("latin-1"), usedforsecurity=False).digest()
        headers = {"Sec-WebSocket-Accept": base64.b64encode(digest).decode()}
        if subprotocol:
            headers["Sec-WebSocket-Protocol"] = subprotocol
        return UpgradeAgreement(_head("websocket", headers), codec, subprotocol)


def _head(protocol: str, more: dict[str, str]) -> bytes:
    lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", f"Upgrade: {protocol}"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
