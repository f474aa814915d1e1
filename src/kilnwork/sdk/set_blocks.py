"""Steps of a SyncSet that contain other steps: in parallel, repeated, or in sequence.

Used by `sync_sets`. Steps declared within `with` of a block belong to it. Steps that run something
are in `set_steps`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from kilnwork.sdk import errors, set_expressions, set_steps


@dataclass(slots=True)
class Steps:
    """A list of steps in the order of their declaration."""

    listed: list[set_steps.Step] = field(default_factory=list)

    def render(self, locate: set_steps.Locate) -> list[dict[str, Any]]:
        """Return the steps as they are written in a flow."""
        return [{step.name: step.render(locate)} for step in self.listed]


class BlockOwner(set_steps.StepOwner):
    """A SyncSet that can add steps to a block while the block is open."""

    def enter_block(self, steps: Steps) -> None:
        """Add the steps that are declared from now on to this block."""
        raise NotImplementedError

    def leave_block(self, steps: Steps) -> None:
        """Add the steps that are declared from now on to the enclosing block again."""
        raise NotImplementedError


class Block(set_steps.Step):
    """A step that contains the steps declared within its `with` block."""

    def __init__(self, name: str, of: BlockOwner) -> None:
        super().__init__(name, of)
        self._opener = of
        self._steps = Steps()

    def __enter__(self) -> Self:
        self._opener.enter_block(self._steps)
        return self

    def __exit__(self, *_: object) -> None:
        self._opener.leave_block(self._steps)

    def _body(self, locate: set_steps.Locate) -> dict[str, Any]:
        return {"do": self._steps.render(locate)}


def paths(steps: Steps, prefix: str = "") -> Iterator[tuple[set_steps.Step, str]]:
    """Yield all steps, nested ones too, with their paths, such as `checks.var`."""
    for step in steps.listed:
        yield step, f"{prefix}{step.name}"
        if isinstance(step, Block):
            yield from paths(step._steps, f"{prefix}{step.name}.")


class ForkBlock(Block):
    """A block of steps that run in parallel; its value is an object with their values by name."""

    def __init__(self, name: str, of: BlockOwner, *, wait: Literal["all", "any"] | int) -> None:
        super().__init__(name, of)
        self._wait = wait

    def _body(self, locate: set_steps.Locate) -> dict[str, Any]:
        branches = {name: step for one in self._steps.render(locate) for name, step in one.items()}
        return {"fork": branches, "wait": self._wait}


class RepeatBlock(Block):
    """A block of steps that is repeated until a condition is true.

    The value of the block is the value of its last step; it is None before the first round.
    """

    def __init__(self, name: str, of: BlockOwner, *, most: int) -> None:
        super().__init__(name, of)
        self._most = most
        self._until: set_expressions.Expression | None = None

    @property
    def iteration(self) -> set_expressions.Expression:
        """The number of the round, from 0."""
        return set_expressions.Expression(self, ".iteration")

    def until(self, condition: set_expressions.Expression) -> Self:
        """End the repetition when a condition is true; it is evaluated after each round."""
        self._until = condition
        return self

    def _body(self, locate: set_steps.Locate) -> dict[str, Any]:
        if self._until is None:
            raise errors.BadOption(
                f"{self._owner.of}: step {self.name}: has no end: say .until(condition)"
            )
        until = f"${{ {set_expressions.text(self._until)} }}"
        return {"until": until, "max": self._most, **super()._body(locate)}
