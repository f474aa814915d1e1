"""Compiled flows: a tree of nodes with parsed expressions and all defaults.

Used by the validation of flows and SyncSets, the plan of flows, the controllers, the SDK and
`kilnwork.testing`. `build` reads the nested steps, which have no schema, and collects all problems
with their paths; `flow_validation` checks the names that steps refer to. No I/O.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import flow, flow_expressions, names, resolved_job_settings
from kilnwork.api import task as api_task

RESULTS = "results"
"""Name of the input of a `join` without `with`."""

STEP_NAME = re.compile(r"[a-z][a-zA-Z0-9]{0,39}")
RESERVED = frozenset(
    {"catch", "data", "error", "finally", "params", "set", "true", "false", "null"}
)
"""Names that are reserved in expressions, and names of the sections of a flow."""

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_AT = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)


class Problem(NamedTuple):
    """A problem of a flow. `path`: the field, relative to the flow, such as `do[1].price.of`;
    `text`: a sentence without a subject."""

    path: str
    text: str


class NodeKind(StrEnum):
    """Kind of a node of a flow program."""

    WORK = "work"
    EACH = "each"
    FORK = "fork"
    UNTIL = "until"
    GROUP = "group"

    @property
    def leaf(self) -> bool:
        """Return whether nodes of this kind have a job."""
        return self in (NodeKind.WORK, NodeKind.EACH)


class FlowNode:
    """Compiled form of one step of a flow. Fields that do not apply to its kind are empty."""

    def __init__(self, name: str, path: str, step: flow.Step, kind: NodeKind) -> None:
        self.name, self.path, self.step, self.kind = name, path, step, kind
        self.condition: flow_expressions.Expression | None = None
        self.alternative: FlowNode | None = None
        """The step of `else`; it has the same name."""
        self.task: api_task.TaskTemplate | None = None
        """The task of a work step, without its TaskCluster."""
        self.needs_no_group = False
        """Whether the template names a TaskCluster or another executor, so that the step needs
        no group."""
        self.shared_inputs: dict[str, flow_expressions.Document] = {}
        """Inputs that are the same for all items."""
        self.item_inputs: dict[str, Any] = {}
        """Inputs that depend on the item, unparsed."""
        self.item_input_names: tuple[flow_expressions.Name, ...] = ()
        """Names used by `item_inputs`, except for the item."""
        self.items: flow_expressions.Expression | None = None
        self.max_failed: int | str = 0
        """Number or percentage of items that may fail."""
        self.children: tuple[FlowNode, ...] = ()
        """Branches of a fork, or the nested steps of other kinds in order."""
        self.min_successful = 0
        """Number of branches of a fork that must succeed; 0 for all of them."""
        self.condition_of_loop: flow_expressions.Expression | None = None
        self.is_kept = False
        """Whether the value or the results of the step are kept."""
        self.is_referenced = False
        """Whether an expression refers to the value or the results of the step."""

    @property
    def expressions(self) -> Iterator[tuple[str, tuple[flow_expressions.Name, ...]]]:
        """Yield the path and the names of each expression of the step, except for that of its
        loop."""
        if self.condition is not None:
            yield f"{self.path}.if", self.condition.names
        if self.items is not None:
            yield f"{self.path}.of", self.items.names
        for name, document in self.shared_inputs.items():
            yield f"{self.path}.with.{name}", document.names
        yield f"{self.path}.with", self.item_input_names

    @property
    def with_alternative(self) -> tuple["FlowNode", ...]:
        """Return the step and, if it has one, the step in its `else`."""
        return (self,) if self.alternative is None else (self, self.alternative)


class Clause(NamedTuple):
    """Compiled entry of `catch` in a flow."""

    causes: frozenset[str]
    nodes: tuple[FlowNode, ...]

    def applies_to(self, reasons: Iterable[str]) -> bool:
        """Return whether the entry applies to a failure with these reasons."""
        return not self.causes or not self.causes.isdisjoint(reasons)


class Program:
    """Compiled form of a whole flow."""

    def __init__(self, declared: flow.Flow) -> None:
        self.params = declared.params
        self.timeout_s = declared.timeout_seconds
        self.nodes: tuple[FlowNode, ...] = ()
        self.catch: tuple[Clause, ...] = ()
        self.finally_steps: tuple[FlowNode, ...] = ()
        """The steps of `finally`."""
        self.result: flow_expressions.Expression | None = None

    @property
    def sections(self) -> Iterator[tuple[str, tuple[FlowNode, ...]]]:
        """Yield the key prefix and the nodes of each list of steps in the flow."""
        yield "", self.nodes
        for number, clause in enumerate(self.catch):
            yield f"catch[{number}].", clause.nodes
        yield "finally.", self.finally_steps

    def all_nodes(self) -> Iterator[FlowNode]:
        """Yield all nodes, outer ones first."""
        for _, nodes in self.sections:
            yield from _walk(nodes)


def _walk(nodes: Iterable[FlowNode]) -> Iterator[FlowNode]:
    for node in nodes:
        for one in node.with_alternative:
            yield one
            yield from _walk(one.children)


def build(declared: flow.Flow) -> tuple[Program, list[Problem]]:
    """Return the program of a flow, and the problems of its individual steps.

    A program with problems must not be run.
    """
    builder = _Builder()
    program = Program(declared)
    program.nodes = builder.steps("do", declared.do)
    program.catch = tuple(
        Clause(frozenset(clause.causes), builder.steps(f"catch[{number}].do", clause.do))
        for number, clause in enumerate(declared.catch)
    )
    program.finally_steps = builder.steps("finally", declared.finally_, may_be_empty=True)
    if declared.result:
        with builder.problem_at("result"):
            program.result = flow_expressions.parse_field(declared.result)
    if builder.count > flow.MAX_STEPS:
        builder.add("do", f"has {builder.count} steps; {flow.MAX_STEPS} are allowed")
    builder.tolerate(program)
    return program, builder.problems


class _Builder:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.count = 0

    def add(self, path: str, text: str) -> None:
        self.problems.append(Problem(path, text))

    @contextlib.contextmanager
    def problem_at(self, path: str) -> Iterator[None]:
        """Record an invalid expression in a field as a problem."""
        try:
            yield
        except flow_expressions.ExpressionError as error:
            self.add(path, str(error))

    def steps(
        self, path: str, given: Sequence[Any], *, may_be_empty: bool = False
    ) -> tuple[FlowNode, ...]:
        found = []
        for number, one in enumerate(given):
            here = f"{path}[{number}]"
            if not isinstance(one, Mapping) or len(one) != 1:
                self.add(here, "must have one entry: the name of the step, and the step")
                continue
            (name, step), *_ = one.items()
            found.append(self.node(str(name), f"{here}.{name}", step))
        if not given and not may_be_empty:
            self.add(path, "must have a step")
        return tuple(node for node in found if node is not None)

    def node(
        self, name: str, path: str, given: Any, *, alternative: bool = False
    ) -> FlowNode | None:
        self.count += 1
        if self.count > flow.MAX_STEPS:
            return None
        self._check_name(name, path)
        step = self._read(path, given)
        kind = None if step is None else self._kind(path, step)
        if step is None or kind is None:
            return None
        node = FlowNode(name, path, step, kind)
        self._check_fields(node)
        if alternative:
            for field, here in (("if", step.if_), ("timeoutSeconds", step.timeout_seconds)):
                if here:
                    self.add(f"{path}.{field}", "has no place in an else: put it into a `do` there")
        self._conditions(node)
        if kind.leaf:
            self._work(node)
        else:
            self._compound(node)
        return node

    def _check_name(self, name: str, path: str) -> None:
        if not STEP_NAME.fullmatch(name):
            self.add(path, "must be named by 1 to 40 letters and digits, the first in lower case")
        elif name in RESERVED:
            self.add(path, f"must not be named {name}, which expressions have for something else")

    def _conditions(self, node: FlowNode) -> None:
        step, path = node.step, node.path
        if step.if_:
            with self.problem_at(f"{path}.if"):
                node.condition = flow_expressions.parse_field(step.if_)
        if step.else_ is not None:
            if not step.if_:
                self.add(f"{path}.else", "needs an `if`")
            node.alternative = self.node(node.name, f"{path}.else", step.else_, alternative=True)

    def _read(self, path: str, given: Any) -> flow.Step | None:
        if isinstance(given, flow.Step):
            return given
        try:
            return msgspec.convert(given, flow.Step)
        except msgspec.ValidationError as error:
            self._note_invalid(path, error)
            return None

    def _note_invalid(self, path: str, error: Exception) -> None:
        found = _AT.fullmatch(str(error))
        text, where = (found[1], found[2]) if found else (str(error), "")
        self.add(f"{path}{where}", f"is not valid: {text}")

    def _kind(self, path: str, step: flow.Step) -> NodeKind | None:
        work = [bool(step.call), bool(step.command), step.task_template is not None]
        given = [*work, bool(step.fork), bool(step.do)]
        if sum(given) != 1:
            self.add(path, "must have one of call, command, taskTemplate, fork and do")
            return None
        if step.fork:
            return NodeKind.FORK
        if step.do:
            return NodeKind.UNTIL if step.until else NodeKind.GROUP
        return NodeKind.EACH if step.each else NodeKind.WORK

    def _check_fields(self, node: FlowNode) -> None:
        """Record as problems the fields that have no effect in a step of this kind."""
        step, kind = node.step, node.kind
        useless = {
            "until": step.until and kind is not NodeKind.UNTIL,
            "max": step.max is not None and kind is not NodeKind.UNTIL,
            "of": step.of and not step.each,
            "each": step.each and kind is not NodeKind.EACH,
            "parallel": step.parallel is not None and kind is not NodeKind.EACH,
            "allow": step.allow is not None and not (kind is NodeKind.EACH or step.join),
            "wait": step.wait != "all" and kind is not NodeKind.FORK,
            "join": step.join and kind is not NodeKind.WORK,
        }
        if not kind.leaf:
            useless |= {
                "with": step.with_,
                "group": step.group,
                "retry": step.retry is not None,
                "attemptSeconds": step.attempt_seconds is not None,
                "deterministic": step.deterministic,
            }
        for name, given in useless.items():
            if given:
                self.add(f"{node.path}.{name}", f"has no use in a step of kind {kind.value}")

    def _work(self, node: FlowNode) -> None:
        step, path = node.step, node.path
        node.task = self._template(node)
        given: dict[str, Any] = dict(step.with_)
        whole = frozenset({step.each}) if step.each else frozenset()
        if step.each:
            if not step.of:
                self.add(f"{path}.of", "is needed with `each`: data.NAME, or a list")
            elif not STEP_NAME.fullmatch(step.each) or step.each in RESERVED:
                self.add(f"{path}.each", "must be letters and digits, the first in lower case")
            else:
                with self.problem_at(f"{path}.of"):
                    node.items = flow_expressions.parse_field(step.of)
            given = given or {step.each: f"${{ {step.each} }}"}
            node.max_failed = self._failed(f"{path}.allow", step)
        if step.join:
            given = given or {RESULTS: f"${{ {step.join}.results }}"}
        names: list[flow_expressions.Name] = []
        for name, value in given.items():
            with self.problem_at(f"{path}.with.{name}"):
                document = flow_expressions.Document(value, whole)
                if whole.isdisjoint(one.root for one in document.names):
                    node.shared_inputs[name] = document
                else:
                    node.item_inputs[name] = value
                    names += (one for one in document.names if one.root not in whole)
        node.item_input_names = tuple(dict.fromkeys(names))

    def _failed(self, path: str, step: flow.Step) -> int | str:
        failed = 0 if step.allow is None else step.allow.failed
        if isinstance(failed, int) and not isinstance(failed, bool) and failed >= 0:
            return failed
        if isinstance(failed, str):
            try:
                resolved_job_settings.percent_of(failed, 0)
            except ValueError as error:
                self.add(f"{path}.failed", str(error))
                return 0
            return failed
        self.add(f"{path}.failed", "must be a number from 0 on, or a percentage such as 1%")
        return 0

    def _template(self, node: FlowNode) -> api_task.TaskTemplate | None:
        step, path = node.step, node.path
        if step.call:
            name = step.call if ":" in step.call else ":".join(step.call.rsplit(".", 1))
            if not _FUNCTION.fullmatch(name):
                self.add(f"{path}.call", "must name a function, as package.module:name")
                return None
            return api_task.TaskTemplate(call=api_task.Call(function=name))
        if step.command:
            return api_task.TaskTemplate(command=step.command)
        try:
            found = msgspec.convert(step.task_template, api_task.TaskTemplate)
        except msgspec.ValidationError as error:
            self._note_invalid(f"{path}.taskTemplate", error)
            return None
        if found.input_object is not None or found.inputs:
            self.add(f"{path}.taskTemplate", "must not name inputs: give them in `with`")
        named = "clusterName" in (step.task_template or {})
        node.needs_no_group = named or found.executor != api_task.WORKER
        return found

    def _compound(self, node: FlowNode) -> None:
        step, path = node.step, node.path
        if node.kind is NodeKind.FORK:
            if len(step.fork) > flow.MAX_BRANCHES:
                self.add(f"{path}.fork", f"has more than {flow.MAX_BRANCHES} branches")
                return
            branches = (
                self.node(str(name), f"{path}.fork.{name}", one) for name, one in step.fork.items()
            )
            node.children = tuple(one for one in branches if one is not None)
            node.min_successful = self._least(node)
            return
        node.children = self.steps(f"{path}.do", step.do)
        if node.kind is not NodeKind.UNTIL:
            return
        if step.max is None:
            self.add(f"{path}.max", "is needed with `until`: the most rounds")
        with self.problem_at(f"{path}.until"):
            node.condition_of_loop = flow_expressions.parse_field(step.until)

    def _least(self, node: FlowNode) -> int:
        wait, most = node.step.wait, len(node.step.fork)
        if wait == "all":
            return 0
        if wait == "any":
            return 1
        if isinstance(wait, int) and not isinstance(wait, bool) and 1 <= wait <= most:
            return wait
        self.add(f"{node.path}.wait", f"must be all, any, or a number from 1 to {most}")
        return 0

    def tolerate(self, program: Program) -> None:
        """Let each `each` step tolerate the failures that its `join` allows."""
        nodes = list(program.all_nodes())
        each = {node.name: node for node in nodes if node.kind is NodeKind.EACH}
        for node in nodes:
            target = each.get(node.step.join)
            if node.step.allow is None or not node.step.join or target is None:
                continue
            if target.step.allow is not None:
                path = f"{node.path}.allow"
                self.add(path, f"stands at {node.step.join} too: say it in one place")
                continue
            target.max_failed = self._failed(f"{node.path}.allow", node.step)


def code_digests(program: Program) -> frozenset[bytes]:
    """Return the digests of all code blobs that the steps of a flow call."""
    calls = [node.task.call for node in program.all_nodes() if node.task is not None]
    texts = [text for call in calls if call is not None for text in (call.code, call.environment)]
    found = (names.digest(text) for text in texts)
    return frozenset(digest for digest in found if digest is not None)


def shard_readers(program: Program) -> dict[str, list[FlowNode]]:
    """Return, by snapshot, the steps that have one task for each of its shards, or for some of
    them."""
    found: dict[str, list[FlowNode]] = {}
    for node in program.all_nodes():
        for name in () if node.items is None else node.items.names:
            if name.root == "data" and name.member is not None:
                found.setdefault(name.member, []).append(node)
    return found


def task_prefix(set_name: str, generation: int, key: str, *, largest: int | None) -> str:
    """Return the name of the tasks of a step instance, without the number of the item.

    The name is `<set>-g<N>-<step>`, a DNS label that leaves room for `-<largest>`; `largest` is
    None if there are no items. `key` is the key of the step: `solve[3].iterate` gives
    `solve-3-iterate`. A name that is too long is cut and ends with a hash of the full name.
    """
    slug = re.sub(r"[\[\].]+", "-", key).strip("-").lower()
    room = 0 if largest is None else len(f"-{largest}")
    return names.dns_label(f"{set_name}-g{generation}-{slug}", names.LABEL_LENGTH - room)
