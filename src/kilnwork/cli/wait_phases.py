"""Common code for kinds with a `status.phase`: the phases that `kiln wait` can wait for.

Used by `job_fields` and `sync_set_requests`. Not for Tasks, which have states.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from kilnwork.cli import errors

Item = Mapping[str, Any]
P = TypeVar("P", bound="Phase")


class Phase(Protocol):
    """Phase of an object as a StrEnum that knows which of its members are final."""

    @property
    def final(self) -> bool:
        """Return whether an object in this phase has finished."""
        ...


def find(text: str, known: Mapping[str, P]) -> P | None:
    """Return the known phase that `phase=NAME`, `state=NAME` or `NAME` names, or None.

    Upper and lower case are not distinguished.
    """
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
    """Return the test with which `kiln wait --for` waits until an object reaches a phase.

    `wanted`: None for any final phase. `name`: the object's name, for messages. The test raises
    `errors.Missing` if there is no such object, and `errors.TaskFailed` if it has finished in
    another phase.
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
