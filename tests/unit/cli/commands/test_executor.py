"""`kiln executor`: labels, and addresses that may be requested."""

import ipaddress

import pytest

from kilnwork.cli import exits
from kilnwork.cli.commands import executor
from support import serverless_cli


@pytest.mark.parametrize(
    ("text", "labels"),
    [("", {}), ("a=b", {"a": "b"}), ("a=", {"a": ""}), ("x.io/a=b,c=d", {"x.io/a": "b", "c": "d"})],
)
def test_labels_are_pairs(text: str, labels: dict[str, str]) -> None:
    assert executor.LABELS.convert(text, None, None) == labels


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("grpc",), "'grpc' is not 'http'"),
        (("http", "--slots", "0"), "--slots"),
        (("http", "--slots", "10001"), "--slots"),
        (("http", "--labels", "a"), "'a' is not a label: write KEY=VALUE"),
        (("http", "--labels", "-a=b"), "'-a=b' is not a label"),
        (("http", "--labels", "a=b,c"), "'c' is not a label"),
        (("http", "--allow", "localhost"), "'localhost' is not an address"),
    ],
)
def test_invalid_arguments_are_rejected(
    kiln: serverless_cli.ServerlessCli, arguments: tuple[str, ...], words: str
) -> None:
    ended = kiln.run("executor", *arguments)
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


def test_addresses_of_a_host_are_numbers() -> None:
    assert executor._addresses("127.0.0.1") == {"127.0.0.1"}
    found = executor._addresses("localhost")
    assert found
    assert all(ipaddress.ip_address(one).is_loopback for one in found)


def test_host_without_an_address_has_none() -> None:
    assert executor._addresses("") == set()
