"""The flow of a SyncSet: steps in order, fanned out over shards, joined, repeated.

Fields of `spec.flow` as users write them. A step is what it has: one of `call`, `command`,
`taskTemplate` (work), `fork`, `until` or `do` (other steps). Steps inside of steps have the same
fields, but no schema, which Kubernetes could not express: `flow_program` reads and checks them, and
makes of all a tree that the plan runs. `flow_validation` checks what names in it mean.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import task as api_task
from kilnwork.api import wire

Wire = wire.Wire

Seconds = Annotated[float, msgspec.Meta(gt=0, le=api_task.MAX_S)]

MAX_STEPS = 500
"""Steps of a flow, at whatever depth."""

MAX_BRANCHES = 100
"""Most branches of one fork."""

MAX_ITERATIONS = 1000
"""Most rounds of one loop: each leaves a row in the journal for each of its steps."""

MAX_IN_FLIGHT = 10_000
"""Shards of a step that have a task at once, as indexes of a Job."""


class Allow(Wire, frozen=True):
    """What may go wrong without the step failing."""

    failed: Any = 0
    """How many shards may fail for good: a number, or a percentage such as `1%`, rounded down."""


class Step(Wire, frozen=True):
    """One step of a flow: work of its own, or other steps."""

    call: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    """Python function to call, as `package.module:name` or `package.module.name`."""
    command: tuple[str, ...] = ()
    """Program and arguments, taken as they are. Its inputs are in the file `$KILN_INPUT`."""
    task_template: dict[str, Any] | None = None
    """What to run, as `taskTemplate` of a Job: any executor."""
    group: str = ""
    """Group of workers that runs it; may be left out where there is one."""
    with_: dict[str, Any] = msgspec.field(default_factory=dict, name="with")
    """Inputs by name, any JSON. A text `${ EXPR }` is replaced by the value of the expression."""
    each: str = ""
    """Name for one of the items of `of` in `with`: the step runs once for each of them. Without
    `with`, the item is the input of that name."""
    of: str = ""
    """Items: `data.NAME`, the shards of a snapshot, or an expression that gives a list."""
    parallel: Annotated[int, msgspec.Meta(ge=1, le=MAX_IN_FLIGHT)] | None = None
    """Items at once; without it, as many as keep the workers busy."""
    allow: Allow | None = None
    """How many items may fail; their results are null. May stand at the `join` instead."""
    join: str = ""
    """Name of an earlier `each`. Without `with`, its results are the input `results`."""
    fork: dict[str, Any] = msgspec.field(default_factory=dict)
    """Steps by name that run side by side."""
    wait: Any = "all"
    """Of a fork: `all`, `any`, or how many must succeed. What is not needed then is stopped."""
    if_: str = msgspec.field(default="", name="if")
    """Expression; if it is false, `else` is done, or the step is skipped."""
    else_: dict[str, Any] | None = msgspec.field(default=None, name="else")
    """What is done if `if` is false: a step without a name."""
    until: str = ""
    """Expression that is looked at after each round of `do`; the loop ends when it is true."""
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_ITERATIONS)] | None = None
    """Most rounds of `until`; it is needed, and the step fails when they are used up."""
    do: tuple[dict[str, Any], ...] = ()
    """Steps, one after the other: what `until` repeats, or a group of steps."""
    retry: api_task.Retry | None = None
    """When a failed or lost attempt is followed by another; by default after losses only."""
    attempt_seconds: Seconds | None = None
    """Time for one attempt."""
    timeout_seconds: Seconds | None = None
    """Time for the whole step with all that is in it; then it fails with `StepTimedOut`."""
    deterministic: bool = False
    """The same inputs on the same data always give the same result: results of earlier generations
    are used again."""


NamedStep = Annotated[dict[str, Step], msgspec.Meta(min_length=1, max_length=1)]
"""One entry: the name of the step, and the step."""


class Catch(Wire, frozen=True):
    """What to do when the flow has failed. It stays failed."""

    causes: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    """Reasons for which: of the step or of its task, such as `WorkerLost`. Empty: all."""
    do: tuple[dict[str, Any], ...] = ()
    """Steps, as in `flow.do`. `${ error.step }`, `error.reason` and `error.message` say what
    failed."""


class Flow(Wire, frozen=True):
    """Steps of a SyncSet, one after the other. A step that fails ends the flow."""

    do: Annotated[tuple[NamedStep, ...], msgspec.Meta(min_length=1)]
    """Steps in order: lists of `{name: step}`. Names are letters and digits, and differ."""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values for expressions, as `params.NAME`."""
    result: str = ""
    """Expression for the flow's result; without it, that of the last step."""
    catch: tuple[Catch, ...] = ()
    """What to do when it has failed; the first that fits is done."""
    finally_: tuple[dict[str, Any], ...] = msgspec.field(default=(), name="finally")
    """Steps that run at the end in any case, for 600 s at most."""
    timeout_seconds: Seconds | None = None
    """Time for the steps of `do` together, pauses included; then it fails with `FlowTimedOut`."""
