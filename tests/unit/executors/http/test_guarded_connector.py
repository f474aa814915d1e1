"""Which addresses of a host are connected to."""

import ipaddress

import aiohttp
import pytest
import yarl

from kilnwork.executors.http import guarded_connector
from kilnwork.kit import egress

LOOPBACK = egress.Allowance(ipaddress.ip_network("127.0.0.0/8"), None)


async def test_addresses_that_are_refused_are_dropped() -> None:
    resolver = guarded_connector.GuardedResolver(egress.Policy())
    with pytest.raises(guarded_connector.AddressRefused, match=r"^localhost: .* may not reach"):
        await resolver.resolve("localhost", 80)


async def test_addresses_that_are_allowed_are_given_as_numbers() -> None:
    resolver = guarded_connector.GuardedResolver(egress.Policy(allowed=[LOOPBACK]))
    found = await resolver.resolve("127.0.0.1", 8080)
    assert [(one["host"], one["port"]) for one in found] == [("127.0.0.1", 8080)]
    assert found[0]["hostname"] == "127.0.0.1"


def test_a_refused_address_is_an_os_error() -> None:
    """So that aiohttp handles it as one of its own."""
    assert issubclass(guarded_connector.AddressRefused, OSError)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::1]:1/", "http://169.254.1.1/"])
async def test_an_address_in_the_url_is_checked_though_it_is_not_resolved(url: str) -> None:
    guarded = guarded_connector.GuardedConnector(egress.Policy(), shared=True)

    class Exchange:
        def named(self) -> None:
            raise AssertionError("it is an address")

        async def connected(self, connection: aiohttp.connector.Connection) -> None:
            raise AssertionError("it must not be connected to")

    token = guarded_connector.current.set(Exchange())
    try:
        async with aiohttp.ClientSession(connector=guarded) as session:
            with pytest.raises(aiohttp.ClientOSError, match="may not reach"):
                await session.get(yarl.URL(url))
    finally:
        guarded_connector.current.reset(token)
