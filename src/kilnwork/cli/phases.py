"""What kinds with a `status.phase` have in common on the command line: the phases one may wait for.

Used by `job_objects` and `set_objects`. Not for Tasks, which have states.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from kilnwork.cli import errors

Item = Mapping[str, Any]
P = TypeVar("P", bound="Phase")


class Phase(Protocol):
    """A phase of such a kind: a StrEnum."""

    @property
    def final(self) -> bool:
        """Whether the object is over in it."""
        ...


def find(text: str, known: Mapping[str, P]) -> P | None:
    """The phase in `phase=NAME`, `state=NAME` or `NAME`, however its letters are written."""
    what, equals, value = text.partition("=")
    if equals and what not in ("phase", "state"):
        return None
    return known.get((value if equals else text).lower())


def test_of(
    wanted: Phase | None,
    name: str,
    *,
    phase: Callable[[Item], str],
    is_over: Callable[[Item], bool],
    sentence: Callable[[Item], str],
) -> Callable[[Item | None], bool]:
    """What `kiln wait --for` asks of the object called `name`: that phase, or None for any end.

    The test raises `errors.Missing` without the object, and `errors.TaskFailed` if it has ended
    otherwise.
    """

    def reached(found: Item | None) -> bool:
        if found is None:
            raise errors.Missing(f"{name} does not exist")
        if wanted is None:
            return is_over(found)
        if phase(found) == str(wanted) and (is_over(found) or not wanted.final):
            return True
        if is_over(found):
            raise errors.TaskFailed(f"{name} will not be {wanted}: {sentence(found)}")
        return False

    return reached
