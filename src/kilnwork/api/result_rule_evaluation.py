"""Compiled result rules and their evaluation on a document.

Created by `result_rule_compiler`; used by executors for each new state of a document that they
observe. A rule is true, false or undefined: missing values are not an error. No I/O, and no clock:
work is counted (`json_limits`).
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kilnwork.api import cel_evaluation, json_limits

if TYPE_CHECKING:
    from kilnwork.api import jsonpaths


class Operator(StrEnum):
    """How the value at a path is compared. Names are those of Kubernetes' selectors and
    tolerations."""

    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    EQUAL = "Equal"
    NOT_EQUAL = "NotEqual"
    IN = "In"
    NOT_IN = "NotIn"
    GT = "Gt"
    LT = "Lt"
    MATCHES = "Matches"
    IS_TRUE = "IsTrue"


class RuleOutcome(StrEnum):
    """The state of a task as derived from a document."""

    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"


class PathRule:
    """A compiled rule with a JSONPath; all values at the path must satisfy it."""

    def __init__(self, text: str, path: "jsonpaths.Path", operator: Operator, value: Any) -> None:
        """Create a rule from checked parts, which messages show as `text`; for `Matches`, `value`
        is a Pattern."""
        self.text = text
        self._path = path
        self._operator = operator
        self._value = value

    def evaluate(self, document: Any, budget: json_limits.Budget) -> bool | None:
        """Return whether the rule holds, or None if that is undefined. Raises LimitExceeded."""
        return self._judge(self._path.select(document, budget), budget)

    def explain(self, document: Any, budget: json_limits.Budget) -> str:
        """Return the values at the path as the end of a sentence. Raises LimitExceeded."""
        found = self._path.select(document, budget)
        if not found:
            return "does not exist"
        # of several values, show one that does not satisfy the rule
        value = next((one for one in found if self._judge([one], budget) is not True), found[0])
        return f"is {json_limits.show(value)}"

    def _judge(self, found: list[Any], budget: json_limits.Budget) -> bool | None:
        if self._operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
            return bool(found) is (self._operator is Operator.EXISTS)
        if not found:
            return None
        test = _TESTS[self._operator]
        return _all(test(value, self._value, budget) for value in found)


class CompiledCondition:
    """A condition, which consists of compiled rules that must all be true. Thread-safe."""

    def __init__(self, rules: Sequence[PathRule | cel_evaluation.Predicate]) -> None:
        self._rules = tuple(rules)

    def evaluate(self, document: Any, budget: json_limits.Budget | None = None) -> bool | None:
        """Return whether all rules hold for parsed JSON, or None if that is undefined.

        False if any rule is false, otherwise None if any is None. Raises LimitExceeded. Without a
        budget, the document is measured and the evaluation may take MAX_WORK.
        """
        budget = budget or _budget(document)
        return _all(rule.evaluate(document, budget) for rule in self._rules)

    def explain(self, document: Any, budget: json_limits.Budget | None = None) -> str:
        """Return which rule is not true and the values found instead, or "" if all rules are true.

        Without a budget it may take three times MAX_WORK: every document that can be evaluated can
        also be explained.
        """
        budget = budget or _budget(document, times=_EXPLAINED)
        for rule in self._rules:
            if rule.evaluate(document, budget) is not True:
                return f"waiting for {_shorten(rule.text)}: it {rule.explain(document, budget)}"
        return ""


class CompiledRules:
    """The compiled conditions of a task: success, failure and running. Thread-safe."""

    def __init__(
        self,
        *,
        success: CompiledCondition | None,
        failure: CompiledCondition | None,
        running: CompiledCondition | None,
    ) -> None:
        self._success, self._failure, self._running = success, failure, running

    def judge(self, document: Any, *, check_generation: bool = True) -> RuleOutcome | None:
        """Return the outcome that parsed JSON shows, or None if none is reached. Raises
        LimitExceeded.

        Failure is checked first and takes precedence. With `check_generation`, an object whose
        controller has not observed its newest generation has no outcome.
        """
        budget = _budget(document)
        if check_generation and _explain_unobserved(document):
            return None
        if self._failure is not None and self._failure.evaluate(document, budget):
            return RuleOutcome.FAILED
        if self._success is not None and self._success.evaluate(document, budget):
            return RuleOutcome.SUCCESS
        if self._running is None or self._running.evaluate(document, budget):
            return RuleOutcome.RUNNING
        return None

    def explain(self, document: Any, *, check_generation: bool = True) -> str:
        """Return, for a message, why a document does not show success yet."""
        budget = _budget(document, times=_EXPLAINED)
        if check_generation and (problem := _explain_unobserved(document)):
            return problem
        if self._failure is not None and self._failure.evaluate(document, budget):
            return "failureCondition is true"
        return self._success.explain(document, budget) if self._success is not None else ""


def _explain_unobserved(document: Any) -> str:
    """Return why the status of an object does not describe its newest generation, or "" if it
    does."""
    newest = _member(document, "metadata", "generation")
    observed = _member(document, "status", "observedGeneration")
    if type(newest) is not int or observed is None:
        return ""
    if type(observed) is int and newest == observed:
        return ""
    return (
        f"waiting for generation {newest} to be observed; "
        f"status.observedGeneration is {json_limits.show(observed)}"
    )


def _member(document: Any, outer: str, inner: str) -> Any:
    part = document.get(outer) if isinstance(document, dict) else None
    return part.get(inner) if isinstance(part, dict) else None


def _budget(document: Any, *, times: int = 1) -> json_limits.Budget:
    json_limits.measure(document)
    return json_limits.Budget(times * json_limits.MAX_WORK)


def _all(results: Iterator[bool | None]) -> bool | None:
    """Return False if any result is False, else None if any is None, else True (Kleene's AND)."""
    undefined = False
    for result in results:
        if result is False:
            return False
        undefined = undefined or result is None
    return None if undefined else True


def _in(value: Any, wanted: list[Any], budget: json_limits.Budget) -> bool:
    return any(json_limits.equal(value, one, budget) for one in wanted)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shorten(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _truth(value: Any) -> bool | None:
    """Return whether a value is true, including the text of a Kubernetes condition; None for
    null and for `Unknown`."""
    if value is None or value == "Unknown":
        return None
    return value not in ("False", "false") and bool(value)


_EXPLAINED = 3
"""How often `explain` may spend MAX_WORK: on the evaluation, on the selection of the values, and on
the search for a value that does not satisfy the rule."""

_TESTS: dict[Operator, Callable[[Any, Any, json_limits.Budget], bool | None]] = {
    Operator.EQUAL: json_limits.equal,
    Operator.NOT_EQUAL: lambda value, wanted, budget: not json_limits.equal(value, wanted, budget),
    Operator.IN: _in,
    Operator.NOT_IN: lambda value, wanted, budget: not _in(value, wanted, budget),
    Operator.GT: lambda value, wanted, _: value > wanted if is_number(value) else None,
    Operator.LT: lambda value, wanted, _: value < wanted if is_number(value) else None,
    Operator.MATCHES: lambda value, wanted, budget: (
        wanted.fullmatch(value, budget) if isinstance(value, str) else None
    ),
    Operator.IS_TRUE: lambda value, _wanted, _budget: _truth(value),
}
"""The test of each operator on one value; operators that test existence are not here."""
