"""Steps of a SyncSet that a program declares, with their functions or programs, inputs and options.

Used by `sync_sets`, which creates and orders them, and by `set_blocks`, whose steps contain other
steps. A step renders itself as an item of `spec.flow` (`api.flow`). `sync_sets` checks the names in
expressions, by the same rules as the server. No I/O.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack

import msgspec

from kilnwork.api import flow_program
from kilnwork.api import task as api_task
from kilnwork.sdk import errors, job_parameters, serialization, set_expressions, templates
from kilnwork.sdk import task as sdk_task

Expression = set_expressions.Expression

Runs = Callable[..., Any] | str | Sequence[str] | templates.TemplateTask[Any]
"""The work of a step: a function, the name of a function as `package.module:name`, a program with
its arguments, or a template such as `kiln.http(…)`."""

Locate = Callable[[Callable[..., Any]], dict[str, Any]]
"""Returns the `call` document of a function, by which workers find the function."""

_TEMPLATE_FIELDS = frozenset(api_task.TaskTemplate.__struct_encode_fields__)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class StepOptions(TypedDict, total=False):
    """The options of `.options(…)` of a step. Times are in seconds.

    `name`: the name of the step; by default the name of its function. `group`: the group whose
    workers run it. `max_in_flight`: the maximum number of items that run at once. `max_failed`: how
    many items may fail, a number or a percentage such as `"1%"`; their results are None. `timeout`:
    the time limit of one attempt. `total_timeout`: the time limit of the whole step. `retries`: the
    number of further attempts after failures, with `retry_delay`, `retry_factor`, `retry_max_delay`
    and `max_losses` as for `kiln.task`; `retry_on`: the failures after which the task is tried
    again, `"timeout"` or `"exit:N"`. `deterministic`: the same inputs and data give the same
    result, which later generations reuse.
    """

    name: str
    group: str
    max_in_flight: int
    max_failed: int | str
    timeout: float
    total_timeout: float
    retries: int
    retry_delay: float
    retry_factor: float
    retry_max_delay: float
    max_losses: int
    retry_on: Sequence[str]
    deterministic: bool


_FIELDS = {
    "group": "group",
    "max_in_flight": "parallel",
    "timeout": "attemptSeconds",
    "total_timeout": "timeoutSeconds",
    "deterministic": "deterministic",
}
_RETRY = {
    "retry_delay": "delaySeconds",
    "retry_factor": "factor",
    "retry_max_delay": "maxDelaySeconds",
    "max_losses": "maxLosses",
}


class Step:
    """A step of the flow. As an input of another step, it stands for the value that it returned."""

    def __init__(self, name: str, of: "StepOwner") -> None:
        self._name, self._owner = name, of
        self._options: dict[str, Any] = {}
        self._condition: Expression | None = None

    @property
    def name(self) -> str:
        """The name of the step in the flow."""
        return self._name

    @property
    def value(self) -> Expression:
        """The value that the step returned."""
        return Expression(self, ".value")

    @property
    def state(self) -> Expression:
        """The final state of the step: `Succeeded`, `Failed`, `Skipped` or `Killed`."""
        return Expression(self, ".state")

    @property
    def counts(self) -> Expression:
        """The counts of the step's tasks: `total`, `succeeded`, `failed`, `cancelled`, `reused`."""
        return Expression(self, ".counts")

    @property
    def as_expression(self) -> Expression:
        """The expression that stands for the step as an input."""
        return self.value

    def options(self, **changes: Unpack[StepOptions]) -> Self:
        """Set options of this step and return the step; see `StepOptions`. Raises BadOption."""
        for option in changes:
            if option not in StepOptions.__annotations__:
                known = ", ".join(StepOptions.__annotations__)
                raise errors.BadOption(
                    f"{self._owner.of}: step {self._name}: no option is called {option!r}: use "
                    f"{known}"
                )
        given: dict[str, Any] = dict(changes)
        if "name" in given:
            self._name = self._owner.take_name(str(given.pop("name")), instead_of=self._name)
        self._options.update(given)
        return self

    def only_if(self, condition: Expression) -> Self:
        """Run the step only if a condition is true.

        If it is false, the step is skipped, and so are the steps that use its value.
        """
        self._condition = condition
        return self

    def render(self, locate: Locate) -> dict[str, Any]:
        """Return the step as it is written in the flow. Raises BadOption."""
        body = self._body(locate)
        if self._condition is not None:
            body["if"] = f"${{ {set_expressions.text(self._condition)} }}"
        for option, name in _FIELDS.items():
            if option in self._options:
                body[name] = self._options[option]
        if "max_failed" in self._options:
            body["allow"] = {"failed": self._options["max_failed"]}
        retry = self._retry()
        return {**body, "retry": retry} if retry else body

    def _retry(self) -> dict[str, Any]:
        given = self._options
        found = {name: given[option] for option, name in _RETRY.items() if option in given}
        if "retries" in given:
            found["maxAttempts"] = given["retries"] + 1
        if "retry_on" in given:
            found["on"] = list(given["retry_on"])
        return found

    def _body(self, locate: Locate) -> dict[str, Any]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"


class StepOwner:
    """The methods of a SyncSet that its steps call."""

    of: str
    """How error messages name the SyncSet: `kiln.SyncSet('NAME')`."""

    def take_name(self, wanted: str, *, instead_of: str = "") -> str:
        """Reserve a unique name for a step and return it. Raises BadOption."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Work:
    """The function or program that a step runs, and its inputs by name. `of`: the step, for
    messages.
    """

    runs: Runs
    inputs: Mapping[str, Any]
    of: str

    def render(self, locate: Locate) -> dict[str, Any]:
        """Return the fields of the step for its function or program and for its inputs."""
        found = self._what(locate)
        inputs = {name: self._input(name, value) for name, value in self.inputs.items()}
        return {**found, "with": inputs} if inputs else found

    def _what(self, locate: Locate) -> dict[str, Any]:
        if isinstance(self.runs, templates.TemplateTask):
            fields = msgspec.to_builtins(self.runs._spec)
            kept = {name: value for name, value in fields.items() if name in _TEMPLATE_FIELDS}
            return {"taskTemplate": kept}
        if isinstance(self.runs, str):
            return {"call": self.runs}
        if isinstance(self.runs, Sequence):
            return {"command": list(self.runs)}
        call = locate(sdk_task.function_of(self.runs))
        return {"call": call["function"]} if len(call) == 1 else {"taskTemplate": {"call": call}}

    def _input(self, name: str, value: Any) -> Any:
        try:
            return set_expressions.written(value, job_parameters.plain)
        except (TypeError, ValueError) as error:
            raise errors.BadOption(f"{self.of}: input {name}: {error}") from error


def work(runs: Runs, inputs: Mapping[str, Any], *, first: Mapping[str, Any], of: str) -> Work:
    """Return the checked work of a step.

    `first`: at most one input, which a function gets as its first parameter that is not in
    `inputs`; a program gets it under the name in this mapping. Raises BadOption for anything that
    cannot run as a step, for inputs that the function has no parameters for, and for missing
    inputs.
    """
    if isinstance(runs, str | templates.TemplateTask):
        return Work(runs, {**first, **inputs}, of)
    if isinstance(runs, Sequence):
        if not runs or not all(isinstance(one, str) for one in runs):
            raise errors.BadOption(f"{of}: a program is a list of texts, not {runs!r}")
        return Work(runs, {**first, **inputs}, of)
    function = sdk_task.function_of(runs)
    if not callable(function):
        raise errors.BadOption(
            f"{of}: must be a function, its name as package.module:name, a list with a program and "
            f"its arguments, or a kiln.http(…), not {runs!r}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise errors.BadOption(f"{of}: is a generator, and a step has one value: return a list")
    return Work(runs, _bound(function, inputs, list(first.values()), of=of), of)


def _bound(
    function: Callable[..., Any], inputs: Mapping[str, Any], first: list[Any], *, of: str
) -> dict[str, Any]:
    """Return the inputs by the names of the function's parameters."""
    try:
        signature = inspect.signature(function)
    except ValueError as error:  # some functions written in C have no signature
        raise errors.BadOption(f"{of}: {error}: write a function around it") from error
    by_name = [p.name for p in signature.parameters.values() if p.kind in _BY_NAME]
    leading = dict(zip([name for name in by_name if name not in inputs], first, strict=False))
    found = {**leading, **inputs}
    any_name = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    try:
        for name in inputs:
            if name not in by_name and not any_name:
                raise TypeError(f"has no parameter for the input {name!r}")
        signature.bind(**found)
        if len(leading) < len(first):
            raise TypeError("has no parameter that is left for the item")
    except TypeError as error:
        raise errors.BadOption(
            f"{of}: {error}; parameters of {serialization.function_name(function)}: "
            f"{', '.join(by_name) or 'none'}"
        ) from None
    return found


class CallStep(Step):
    """A step with one task."""

    def __init__(self, name: str, of: StepOwner, does: Work) -> None:
        super().__init__(name, of)
        self._does = does

    def _body(self, locate: Locate) -> dict[str, Any]:
        return self._does.render(locate)


class EachStep(Step):
    """A step with one task per item; as an input it stands for the list of the results."""

    def __init__(
        self, name: str, of: StepOwner, does: Work, *, item: str, items: Expression
    ) -> None:
        super().__init__(name, of)
        self._does, self._item, self._items = does, item, items

    @property
    def value(self) -> Expression:
        """The list of the results of the step's tasks."""
        return self.results

    @property
    def results(self) -> Expression:
        """The results of the step's tasks in the order of the items; None for a task that
        failed.
        """
        return Expression(self, ".results")

    def _body(self, locate: Locate) -> dict[str, Any]:
        of = set_expressions.text(self._items)
        plain = re.fullmatch(r"data\.\w+", of)
        items = of if plain else f"${{ {of} }}"
        return {"each": self._item, "of": items, **self._does.render(locate)}


class JoinStep(CallStep):
    """A step that gets the list of the results of an `each` step."""

    def __init__(self, name: str, of: StepOwner, does: Work, *, joins: EachStep) -> None:
        super().__init__(name, of, does)
        self._joins = joins

    def _body(self, locate: Locate) -> dict[str, Any]:
        return {"join": self._joins.name, **super()._body(locate)}


class ChoiceStep(CallStep):
    """A step that calls one of two functions, depending on a condition."""

    def __init__(self, name: str, of: StepOwner, does: Work, *, otherwise: Work) -> None:
        super().__init__(name, of, does)
        self._otherwise = otherwise

    def _body(self, locate: Locate) -> dict[str, Any]:
        return {**super()._body(locate), "else": self._otherwise.render(locate)}

    def render(self, locate: Locate) -> dict[str, Any]:
        """Return the step as it is written in the flow. Raises BadOption.

        The options that concern its tasks are written for `else` too, so that they apply to both
        branches.
        """
        body = super().render(locate)
        shared = {"group", "attemptSeconds", "retry", "deterministic"} & body.keys()
        body["else"] = {**{name: body[name] for name in sorted(shared)}, **body["else"]}
        return body


def step_name(runs: Runs) -> str:
    """Return the default name of a step: the name of its function or program in letters and
    digits.
    """
    if isinstance(runs, str):
        found = re.split(r"[:.]", runs)[-1]
    elif isinstance(runs, templates.TemplateTask):
        found = runs._spec.executor
    elif isinstance(runs, Sequence):
        found = runs[0].rpartition("/")[2] if runs and isinstance(runs[0], str) else ""
    else:
        found = serialization.function_name(sdk_task.function_of(runs)).rpartition(".")[2]
        found = found.rpartition(":")[2]
    first, *rest = re.findall(r"[A-Za-z0-9]+", found) or ["step"]
    camel = first[:1].lower() + first[1:] + "".join(part[:1].upper() + part[1:] for part in rest)
    return camel[:36] if flow_program.STEP_NAME.fullmatch(camel[:36]) else "step"
