"""Inputs of the tasks of one step instance, as JSON; the same wherever a flow runs. No I/O.

Used by `step_work_builder`, which makes a `StepWork` when the step begins, by the job of the step,
and by `kilnwork.testing`. Expressions that do not depend on the item are evaluated once for all
tasks; the other expressions are evaluated when an item gets its task, from values stored with the
step.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from kilnwork.api import flow_expressions
from kilnwork.api import task as api_task

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class StepWork(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Definition of the work of a step instance; stored in the journal as the definition of the
    step's job.
    """

    name: str
    """Name of the step's task, or prefix of the names of its tasks if the step has `each`."""
    template: api_task.TaskTemplate
    retry: api_task.Retry | None = None
    attempt_seconds: float | None = None
    shared: dict[str, msgspec.Raw] = {}
    """Inputs of all tasks, as JSON by name."""
    variable: str = ""
    """Name of the item in `own`; "" if the step has a single task."""
    own: dict[str, Any] = {}
    """Inputs that depend on the item, with expressions in them."""
    scope: dict[str, Any] = {}
    """Values of the other names in these expressions: members by root."""
    items: tuple[msgspec.Raw, ...] = ()
    """The items, each as JSON."""
    portions: int = 0
    """If not 0, the items are shards, and their snapshot is divided into this many portions: the
    task of a shard needs a worker on a node that has the shard's portion. 0: any worker."""
    max_failed: int = 0
    parallel: int | None = None
    wanted: bool = False
    """Whether the results of the step are read when it has ended."""
    needed: bool = False
    """Whether the step fails if its results cannot be read."""
    memo: str = ""
    """Digest of everything that the results depend on except the inputs; "" if they are not stored
    for reuse."""

    @property
    def size(self) -> int:
        """Number of tasks of the step instance."""
        return len(self.items) if self.variable else 1


class Inputs:
    """The inputs of a step's tasks, by number from 0."""

    def __init__(self, work: StepWork) -> None:
        self._work = work
        self._shared = b",".join(_member(name, raw) for name, raw in work.shared.items())
        self._own: list[tuple[str, bytes, flow_expressions.Document]] = []
        """Name, the JSON before the value, and the value."""
        self._scope = work.scope
        whole = frozenset({work.variable})
        for name, value in work.own.items():
            self._own.append((name, _member(name, b""), flow_expressions.Document(value, whole)))

    def encode_inputs(self, number: int) -> bytes:
        """Return the inputs of a task as a JSON object by name. Raises ExpressionError."""
        parts = [self._shared] if self._shared else []
        if self._own:
            item = self._work.items[number]
            decoded: list[Any] = []

            def lookup(name: flow_expressions.Name) -> Any:
                if name.root == self._work.variable:
                    if not decoded:
                        decoded.append(_decode(item))
                    return decoded[0]
                return self._scope[name.root][name.member or ""]

            for key, before, document in self._own:
                one = document.expression
                if one is not None and one.path == (self._work.variable,):
                    parts.append(b"%b%b" % (before, item))
                    continue
                try:
                    parts.append(before + _encode(document.evaluate(lookup)))
                except flow_expressions.ExpressionError as error:
                    text = "" if one is None else f" ${{ {one.text} }}"
                    raise flow_expressions.ExpressionError(f"with.{key}:{text} {error}") from error
        return b"{%b}" % b",".join(parts)

    def memo_key(self, number: int) -> bytes:
        """Return the key under which the result of a task is stored for reuse. Raises
        ExpressionError."""
        work = self._work
        item = bytes(work.items[number]) if work.variable else b""
        return hashlib.sha256(
            b"%b\0%b\0%b" % (work.memo.encode(), self.encode_inputs(number), item)
        ).digest()


def _member(name: str, value: msgspec.Raw | bytes) -> bytes:
    return b"%b:%b" % (_encode(name), bytes(value))


def encode_arguments(template: api_task.TaskTemplate, inputs: bytes) -> bytes:
    """Return the arguments of a call as JSON: a list of positional and an object of keyword
    arguments."""
    call = template.call
    if call is None or not (call.args or call.kwargs):
        return b"[[],%b]" % inputs
    return _encode((call.args, {**call.kwargs, **_decode(inputs)}))


def memo_digest(
    template: api_task.TaskTemplate, name: str, snapshots: Sequence[tuple[str, str]]
) -> str:
    """Return a digest of all facts on which the results of a step depend, except the step's inputs.

    That is the template that the step runs, its name, and all data that its workers see.
    `snapshots`: (name, digest) pairs.
    """
    what = _encode((template, name, sorted(snapshots)))
    return hashlib.sha256(what).hexdigest()
