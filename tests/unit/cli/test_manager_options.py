"""Options that `kiln manager` and `kiln install` share."""

import click
import pytest

from kilnwork.api import manager_access
from kilnwork.cli import manager_options, options


def accepted(kind: options.Parsed, text: str) -> bool:
    try:
        kind.convert(text, None, None)
    except click.BadParameter:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("0.0.0.0:7443", ("0.0.0.0", 7443)), ("[::]:1", ("::", 1)), (":65535", ("", 65535))],
)
def test_address_is_a_host_and_a_port(text: str, parsed: tuple[str, int]) -> None:
    assert manager_options.ADDRESS.convert(text, None, None) == parsed


@pytest.mark.parametrize("text", ["7443", "host", "host:", "host:65536", "host:-1", "host:٣"])
def test_invalid_addresses_are_rejected(text: str) -> None:
    assert not accepted(manager_options.ADDRESS, text)


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("10.0.0.5:7443", True),
        ("[fd00::1]:7443", True),
        ("unix", True),
        ("other", False),
        ("host:0", False),
        ("host:65536", False),
        (":7443", False),
        ("0.0.0.0:7443", False),
        ("[::]:7443", False),
        ("http://host:7443", False),
    ],
)
def test_advertised_address_must_be_reachable_by_others(
    text: str,
    usable: bool,  # noqa: FBT001
) -> None:
    assert accepted(manager_options.advertised("unix"), text) is usable


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("https://kiln.example", True),
        ("http://10.0.0.1:80/path", True),
        ("ftp://kiln.example", False),
        ("https://", False),
        ("https://a?b=c", False),
        ("https://a#b", False),
        ("https://user@a", False),
        ("https://a b", False),
    ],
)
def test_url_of_callbacks_has_a_host_and_no_query(
    text: str,
    usable: bool,  # noqa: FBT001
) -> None:
    assert accepted(manager_options.BASE_URL, text) is usable


def test_url_of_callbacks_loses_its_last_slash() -> None:
    assert manager_options.BASE_URL.convert("https://a/b/", None, None) == "https://a/b"


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("*", True),
        ("*.example.com", True),
        ("books.example.com", True),
        ("configmaps", True),
        ("*.", False),
        ("Books", False),
        ("books.Example.com", False),
        ("", False),
    ],
)
def test_kind_is_a_plural_and_a_group(text: str, usable: bool) -> None:  # noqa: FBT001
    assert accepted(manager_options.KIND, text) is usable


@pytest.mark.parametrize(
    ("seconds", "usable"),
    [
        (manager_access.MIN_ABSENCE_S, True),
        (manager_access.MAX_ABSENCE_S, True),
        (manager_access.MIN_ABSENCE_S - 1, False),
        (manager_access.MAX_ABSENCE_S + 1, False),
    ],
)
def test_lease_has_bounds(seconds: float, usable: bool) -> None:  # noqa: FBT001
    assert accepted(manager_options.LEASE_LENGTH, f"{seconds:g}s") is usable


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ([], ()),
        (["--ponds"], ("--ponds",)),
        (["--lease", "2m"], ("--lease=120s",)),
        (["--callback-url", "https://a/", "--other", "b"], ("--callback-url=https://a",)),
    ],
)
def test_only_given_options_become_arguments(line: list[str], arguments: tuple[str, ...]) -> None:
    @click.command()
    @click.option("--other")
    @manager_options.options
    @click.pass_context
    def command(ctx: click.Context, /, **_: object) -> tuple[str, ...]:
        return manager_options.chosen_arguments(ctx)

    assert command.main(line, standalone_mode=False) == arguments
