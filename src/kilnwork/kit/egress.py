"""The policy that decides to which addresses connections on behalf of users are allowed; users may
name any URL.

Used by all code that sends requests for users, for each connection: the address that is checked is
the address of the connection, since a name may resolve to another address a moment later. Does no
I/O.
"""

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kilnwork.kit import errors

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16",
         "192.0.0.192"),
    )
)  # fmt: skip
"""Addresses at which machines in clouds get their credentials: AWS, Google, Alibaba, Azure,
Oracle.
"""

_CARRIERS = tuple(
    map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96"))
)
"""IPv6 networks whose last four bytes are an IPv4 address (RFC 6052, RFC 8215, RFC 2765 2.1,
RFC 4291 2.5.5.1)."""


class EgressRefused(errors.KilnError):
    """Connections to this address are not allowed."""


class Allowance(NamedTuple):
    """Addresses that are allowed in spite of the policy.

    `port`: the only allowed port; None for any.
    """

    network: Network
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy for connections: which addresses are refused.

    Always refused, unless `allowed` contains them: loopback, link-local, multicast, unspecified,
    0.0.0.0/8, reserved IPv4, site-local IPv6 and metadata addresses. `refused`: further addresses
    with ports, such as those of the API server; only an allowance with a port takes precedence over
    these.
    """

    allowed: Sequence[Allowance] = ()
    refused: Collection[tuple[str, int]] = ()

    def check(self, text: str, port: int) -> None:
        """Raise EgressRefused if connections to an address and port are not allowed. `text`: a
        numeric address.
        """
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            raise EgressRefused(f"{text} is no address") from None
        found = _embedded(address)
        if any(one.port == port and found in one.network for one in self.allowed):
            return
        why = ""
        if (str(found), port) in self.refused:
            why = "the API server's"
        elif not any(one.port is None and found in one.network for one in self.allowed):
            why = _problem(found)
        if why:
            raise EgressRefused(
                f"{address} port {port} is {why}, which this executor may not reach"
            )


def parse_allowance(text: str) -> Allowance:
    """Parse an allowance such as `127.0.0.0/8`, `127.0.0.1:8080` or `[::1]:8080`. Raises
    ValueError.
    """
    host, port = text, None
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise ValueError("the bracket is not closed")
        port = int(rest.removeprefix(":")) if rest else None
    elif text.count(":") == 1:
        host, _, given = text.partition(":")
        port = int(given)
    return Allowance(ipaddress.ip_network(host, strict=False), port)


def _embedded(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 address, or the address unchanged."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if int(address) in (0, 1):
        return address
    for inner in (address.ipv4_mapped, address.sixtofour):
        if inner is not None:
            return inner
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in carrier for carrier in _CARRIERS):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _problem(address: Address) -> str:
    if address in _METADATA:
        return "the metadata service of a cloud"
    for is_one, what in (
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
        (address.is_unspecified, "the unspecified address"),
    ):
        if is_one:
            return what
    if isinstance(address, ipaddress.IPv4Address):
        if address in ipaddress.ip_network("0.0.0.0/8"):
            return "an address of this network"
        return "a reserved address" if address.is_reserved else ""
    return "a site-local address" if address.is_site_local else ""
