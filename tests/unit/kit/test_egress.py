"""Which addresses may be connected to, in all the forms that they can be written in."""

import pytest

from kilnwork.kit import egress

POLICY = egress.Policy(refused=frozenset({("10.0.0.1", 443)}))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "0.0.0.0", "0.1.2.3", "::",
        "169.254.169.254", "169.254.1.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1",
        "64:ff9b:1::7f00:1", "64:ff9b:1:a::169.254.169.254", "::ffff:0:127.0.0.1",
        "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "ff02::1",
        "240.0.0.1", "255.255.255.255", "fec0::1", "no address", "",
    ],
)  # fmt: skip
def test_these_are_refused(address: str) -> None:
    with pytest.raises(egress.EgressRefused):
        POLICY.check(address, 80)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "10.1.2.3", "192.168.1.1", "172.16.0.9", "2606:2800::1", "fd12::1"]
)
def test_these_are_not(address: str) -> None:
    POLICY.check(address, 80)


def test_the_api_server_is_refused_at_its_port_only() -> None:
    POLICY.check("10.0.0.1", 80)
    for address in ("10.0.0.1", "::ffff:10.0.0.1"):
        with pytest.raises(egress.EgressRefused, match="API server"):
            POLICY.check(address, 443)


@pytest.mark.parametrize(
    ("allowed", "address", "port"),
    [
        ("127.0.0.0/8", "127.0.0.1", 1),
        ("127.0.0.1", "::ffff:127.0.0.1", 1),
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("[::1]:8080", "::1", 8080),
        ("[::1]", "::1", 5),
        ("::1", "::1", 5),
        ("fe80::/10", "fe80::9", 5),
        ("10.0.0.1:443", "10.0.0.1", 443),
    ],
)
def test_allowance_takes_precedence_over_refusal(allowed: str, address: str, port: int) -> None:
    policy = egress.Policy(
        allowed=(egress.parse_allowance(allowed),), refused=frozenset({("10.0.0.1", 443)})
    )
    policy.check(address, port)


def test_a_network_that_is_allowed_leaves_out_the_api_server() -> None:
    policy = egress.Policy(
        allowed=(egress.parse_allowance("10.0.0.0/8"),), refused=frozenset({("10.0.0.1", 443)})
    )
    policy.check("10.0.0.1", 80)
    with pytest.raises(egress.EgressRefused):
        policy.check("10.0.0.1", 443)


def test_an_allowance_for_a_port_is_for_no_other() -> None:
    policy = egress.Policy(allowed=(egress.parse_allowance("127.0.0.1:8080"),))
    with pytest.raises(egress.EgressRefused):
        policy.check("127.0.0.1", 8081)


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "127.0.0.1:x", "[::1", "10.0.0.0/99"])
def test_invalid_allowance_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        egress.parse_allowance(text)
