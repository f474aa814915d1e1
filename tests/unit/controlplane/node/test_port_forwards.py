"""Where a forwarded port is looked for."""

import socket

import pytest

from kilnwork.controlplane.node import port_forwards

ADDRESS = "127.0.0.2"
"""Of the Pod: another one of this machine than that at which the program listens."""


async def test_program_listening_on_loopback_only_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        _, writer = await port_forwards.reach(ADDRESS, listening.getsockname()[1])
        assert writer.get_extra_info("peername")[0] == "127.0.0.1"
        writer.close()
        await writer.wait_closed()


async def test_pod_address_is_tried_first() -> None:
    with socket.create_server((ADDRESS, 0)) as listening:
        _, writer = await port_forwards.reach(ADDRESS, listening.getsockname()[1])
        assert writer.get_extra_info("peername")[0] == ADDRESS
        writer.close()
        await writer.wait_closed()


async def test_error_for_closed_port_names_the_pod_address() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(ConnectionRefusedError, match=r"127\.0\.0\.2"):
            await port_forwards.reach(ADDRESS, port)
