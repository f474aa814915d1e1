"""The flow of a SyncSet: steps in order, fanned out over shards, joined, repeated.

Fields of `spec.flow` as users write them. The kind of a step follows from the field that it has:
`call`, `command` or `taskTemplate` (work), `fork`, `until` or `do` (nested steps). Nested steps
have the same fields but no schema, because Kubernetes cannot express recursion: `flow_program`
reads and checks them, and builds the tree that the plan runs. `flow_validation` checks the names
that steps refer to.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct
from kilnwork.api import task as api_task

Wire = base_struct.Wire

Seconds = Annotated[float, msgspec.Meta(gt=0, le=api_task.MAX_S)]

MAX_STEPS = 500
"""Maximum number of steps of a flow, nested steps included."""

MAX_BRANCHES = 100
"""Maximum number of branches of one fork."""

MAX_ITERATIONS = 1000
"""Maximum number of iterations of one loop: each leaves a row in the journal for each of its
steps."""

MAX_IN_FLIGHT = 10_000
"""Maximum number of shards of a step that have a task at the same time, like indexes of a Job."""


class Allow(Wire, frozen=True):
    """Failures that a step tolerates."""

    failed: Any = 0
    """Maximum number of shards that may fail for good: a number, or a percentage such as `1%`,
    rounded down."""


class Step(Wire, frozen=True):
    """One step of a flow, which either describes tasks or contains nested steps."""

    call: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    """Python function to call, as `package.module:name` or `package.module.name`."""
    command: tuple[str, ...] = ()
    """Program and its arguments, used literally. The inputs are in the file `$KILN_INPUT`."""
    task_template: dict[str, Any] | None = None
    """Task of the step, as `taskTemplate` of a Job, with any executor."""
    group: str = ""
    """Group of workers that runs the step. It may be omitted if there is only one group."""
    with_: dict[str, Any] = msgspec.field(default_factory=dict, name="with")
    """Inputs by name, any JSON. A string `${ EXPR }` is replaced by the value of the expression."""
    each: str = ""
    """Name that stands for one item of `of` within `with`: the step runs once for each item.
    Without `with`, the item is the input of this name."""
    of: str = ""
    """Items: `data.NAME`, the shards of a snapshot, or an expression whose value is a list."""
    parallel: Annotated[int, msgspec.Meta(ge=1, le=MAX_IN_FLIGHT)] | None = None
    """Number of items that are processed at the same time. Unset: as many as keep the workers
    busy."""
    allow: Allow | None = None
    """Number of items that may fail; their results are null. It may be set at the `join`
    instead."""
    join: str = ""
    """Name of an earlier `each` step. Without `with`, the results of that step are the input
    `results`."""
    fork: dict[str, Any] = msgspec.field(default_factory=dict)
    """Steps by name that run in parallel."""
    wait: Any = "all"
    """Branches of a fork that must succeed: `all`, `any`, or a number. The other branches are then
    stopped."""
    if_: str = msgspec.field(default="", name="if")
    """Condition, as an expression. If it is false, `else` runs, or the step is skipped."""
    else_: dict[str, Any] | None = msgspec.field(default=None, name="else")
    """Step that runs if `if` is false; it has no name."""
    until: str = ""
    """Expression that is evaluated after each iteration of `do`. The loop ends when it is true."""
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_ITERATIONS)] | None = None
    """Maximum number of iterations, required with `until`. The step fails when they are used up."""
    do: tuple[dict[str, Any], ...] = ()
    """Steps that run in order: the body of the loop of `until`, or a sequence."""
    retry: api_task.Retry | None = None
    """Rules for retrying attempts. Unset: only lost attempts are repeated."""
    attempt_seconds: Seconds | None = None
    """Maximum duration of one attempt, in seconds."""
    timeout_seconds: Seconds | None = None
    """Maximum duration of the step with all nested steps, in seconds. When it is exceeded, the
    step fails with `StepTimedOut`."""
    deterministic: bool = False
    """Whether the same inputs on the same data always give the same result. If so, results of
    earlier generations are reused."""


NamedStep = Annotated[dict[str, Step], msgspec.Meta(min_length=1, max_length=1)]
"""One entry of a list of steps: the name of the step, and the step."""


class Catch(Wire, frozen=True):
    """Steps that run when the flow has failed. The flow remains failed."""

    causes: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    """Reasons of the failed step or of its task, such as `WorkerLost`, to which the entry applies.
    Empty: all reasons."""
    do: tuple[dict[str, Any], ...] = ()
    """Steps, as in `flow.do`. `${ error.step }`, `error.reason` and `error.message` describe the
    failure."""


class Flow(Wire, frozen=True):
    """Steps of a SyncSet, in order. The flow fails when a step fails."""

    do: Annotated[tuple[NamedStep, ...], msgspec.Meta(min_length=1)]
    """Steps in order, as a list of `{name: step}`. Names consist of letters and digits, and must
    be unique."""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values that expressions refer to as `params.NAME`."""
    result: str = ""
    """Expression for the result of the flow. Empty: the result of the last step."""
    catch: tuple[Catch, ...] = ()
    """Steps that run when the flow has failed. Only the first entry that applies is run."""
    finally_: tuple[dict[str, Any], ...] = msgspec.field(default=(), name="finally")
    """Steps that always run at the end, for at most 600 s."""
    timeout_seconds: Seconds | None = None
    """Maximum duration of all steps of `do` together, in seconds, including pauses. When it is
    exceeded, the flow fails with `FlowTimedOut`."""
