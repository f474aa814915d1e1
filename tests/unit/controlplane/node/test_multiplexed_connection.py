"""Connections with several streams: a peer that only asks cannot fill our memory."""

import asyncio
import socket

import pytest
from websockets import protocol

from kilnwork.controlplane.node import (
    multiplexed_connection,
    spdy,
    streams_interface,
    streams_spdy,
    streams_websocket,
)


def _websocket_ping() -> bytes:
    client = protocol.Protocol(protocol.Side.CLIENT)
    client.send_ping(b"x" * 100)
    return b"".join(client.data_to_send())


@pytest.mark.parametrize(
    ("codec", "asking"),
    [
        (streams_spdy.SpdySession(), spdy.ping(1)),
        (streams_websocket.Channels("v5.channel.k8s.io", [{}]), _websocket_ping()),
    ],
    ids=["spdy", "websocket"],
)
async def test_unread_replies_end_the_connection(
    codec: streams_interface.Codec, asking: bytes
) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    connection = multiplexed_connection.StreamConnection(codec, on_open=lambda _: True)
    await loop.create_connection(lambda: connection, sock=ours)
    many = asking * (64 * 1024 // len(asking))

    async def ask_without_reading() -> None:
        for _ in range(64 * multiplexed_connection.UNHEARD // len(many)):
            await asyncio.wait_for(loop.sock_sendall(theirs, many), 30)

    with pytest.raises(ConnectionError):
        await ask_without_reading()
    assert connection.gone.is_set()
    theirs.close()
