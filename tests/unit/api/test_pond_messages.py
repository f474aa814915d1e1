"""Digests of sources and of sets of paths are the same on all machines."""

import msgspec
import pytest

from kilnwork.api import pond_messages

SOURCE = pond_messages.SourceOrder(name="s", uri="file:///data", paths=("b", "a"))


def test_the_order_of_paths_does_not_matter() -> None:
    other = msgspec.structs.replace(SOURCE, paths=("a", "b"))
    assert pond_messages.source_key(SOURCE) == pond_messages.source_key(other)
    assert pond_messages.paths_digest(("a", "b")) == pond_messages.paths_digest(("b", "a"))


@pytest.mark.parametrize(
    "change", [{"uri": "file:///other"}, {"paths": ("a",)}, {"glob": "*"}, {"attempts": ("t.1.1",)}]
)
def test_another_selection_has_another_key(change: dict[str, object]) -> None:
    other = msgspec.structs.replace(SOURCE, **change)
    assert pond_messages.source_key(SOURCE) != pond_messages.source_key(other)


def test_the_name_of_a_source_does_not_matter() -> None:
    other = msgspec.structs.replace(SOURCE, name="t", allow=("10.0.0.0/8",))
    assert pond_messages.source_key(SOURCE) == pond_messages.source_key(other)


def test_paths_digests_differ() -> None:
    made = [pond_messages.paths_digest(p) for p in (None, (), ("a",), ("a", "b"), ("ab",))]
    assert made[0] == "all"
    assert len(set(made)) == len(made)
