"""Open checks in the text of /readyz."""

import pytest

from kilnwork.cli import readyz_reader


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("ok", ""),
        ("[+]journal ok\n[+]node ok", ""),
        ("[+]journal ok\n[-]node failed: starting", "node failed: starting"),
        ("[-]a\n[+]b\n[-]c\nreadyz check failed", "a; c"),
        ("see [-]a", ""),
    ],
)
def test_only_open_checks_are_named(page: str, text: str) -> None:
    assert readyz_reader.parse_open_checks(page) == text
