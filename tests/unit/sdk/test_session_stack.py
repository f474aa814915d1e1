"""The session that calls go to is the innermost one that is open."""

from collections.abc import Iterator

import pytest

from kilnwork.sdk import errors, session_stack


class Session:
    """Equal to every other, so that only identity can tell them apart."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session)

    def __hash__(self) -> int:
        return 0


@pytest.fixture
def pair() -> Iterator[tuple[Session, Session]]:
    outer, inner = Session(), Session()
    yield outer, inner
    session_stack.remove(outer)
    session_stack.remove(inner)


def test_no_session_error_contains_a_remedy() -> None:
    with pytest.raises(errors.NoSession, match=r"kiln\.start\(\)"):
        session_stack.innermost()


def test_last_added_session_is_innermost_until_removed(pair: tuple[Session, Session]) -> None:
    outer, inner = pair
    session_stack.add(outer)
    session_stack.add(inner)
    assert session_stack.innermost() is inner
    session_stack.remove(inner)
    session_stack.remove(inner)
    assert session_stack.innermost() is outer


def test_a_session_that_is_added_again_becomes_the_innermost(
    pair: tuple[Session, Session],
) -> None:
    outer, inner = pair
    for one in (outer, inner, outer):
        session_stack.add(one)
    assert session_stack.innermost() is outer
    session_stack.remove(outer)
    assert session_stack.innermost() is inner
