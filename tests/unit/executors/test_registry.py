"""Executors by name."""

from typing import cast

import pytest

from kilnwork.executors import port, registry


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


def executor(name: str) -> port.Executor:
    return cast(port.Executor, Named(name))


def test_an_executor_is_found_by_its_name() -> None:
    one, other = executor("one"), executor("other")
    made = registry.Registry([one, other])
    assert made["other"] is other
    assert list(made) == [one, other]


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="nope"):
        registry.Registry([])["nope"]


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two executors are called one"):
        registry.Registry([executor("one"), executor("one")])
