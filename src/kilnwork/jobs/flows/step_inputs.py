"""What the tasks of one step instance get, as JSON; the same wherever a flow runs. Pure.

Used by the plan, which makes it when the step starts, by the job of the step and by
`kilnwork.testing`. What all tasks of a step get is evaluated once; what depends on the item, when
that item gets its task, from values that are kept with the step.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from kilnwork.api import expressions
from kilnwork.api import task as api_task

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class StepWork(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a step runs; the journal has it as the definition of the step's job."""

    name: str
    """Of its tasks; of an `each`, what stands before their numbers."""
    template: api_task.TaskTemplate
    retry: api_task.Retry | None = None
    attempt_seconds: float | None = None
    shared: dict[str, msgspec.Raw] = {}
    """Inputs of all tasks, JSON by name."""
    variable: str = ""
    """Name of the item in `own`; "": the step has one task."""
    own: dict[str, Any] = {}
    """Inputs that depend on the item, with expressions."""
    scope: dict[str, Any] = {}
    """What else those name: members by root."""
    items: tuple[msgspec.Raw, ...] = ()
    """JSON each."""
    portions: int = 0
    """Items are shards, of so many portions of the data: each needs a worker next to its own; 0:
    any worker will do."""
    max_failed: int = 0
    parallel: int | None = None
    wanted: bool = False
    """Its results are read when it is over."""
    needed: bool = False
    """It has failed if they cannot be read."""
    memo: str = ""
    """Digest of all that results depend on beside the inputs; "": they are not kept."""

    @property
    def size(self) -> int:
        """How many tasks it has."""
        return len(self.items) if self.variable else 1


class Inputs:
    """The inputs of a step's tasks, by number from 0."""

    def __init__(self, work: StepWork) -> None:
        self._work = work
        self._shared = b",".join(_member(name, raw) for name, raw in work.shared.items())
        self._own: list[tuple[str, bytes, expressions.Document]] = []
        """Name, what stands before the value in JSON, and the value."""
        self._scope = work.scope
        whole = frozenset({work.variable})
        for name, value in work.own.items():
            self._own.append((name, _member(name, b""), expressions.Document(value, whole)))

    def of(self, number: int) -> bytes:
        """Return a JSON object by name. Raises ExpressionError."""
        parts = [self._shared] if self._shared else []
        if self._own:
            item = self._work.items[number]
            decoded: list[Any] = []

            def lookup(name: expressions.Name) -> Any:
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
                except expressions.ExpressionError as error:
                    text = "" if one is None else f" ${{ {one.text} }}"
                    raise expressions.ExpressionError(f"with.{key}:{text} {error}") from error
        return b"{%b}" % b",".join(parts)

    def memo_key(self, number: int) -> bytes:
        """Return under which the result of a task is kept. Raises ExpressionError."""
        work = self._work
        item = bytes(work.items[number]) if work.variable else b""
        return hashlib.sha256(b"%b\0%b\0%b" % (work.memo.encode(), self.of(number), item)).digest()


def _member(name: str, value: msgspec.Raw | bytes) -> bytes:
    return b"%b:%b" % (_encode(name), bytes(value))


def arguments_of(template: api_task.TaskTemplate, inputs: bytes) -> bytes:
    """Return what a call gets, JSON: its arguments by position, and those by name."""
    call = template.call
    if call is None or not (call.args or call.kwargs):
        return b"[[],%b]" % inputs
    return _encode((call.args, {**call.kwargs, **_decode(inputs)}))


def memo_digest(
    template: api_task.TaskTemplate, name: str, snapshots: Sequence[tuple[str, str]]
) -> str:
    """Return a digest of what results of a step depend on beside its inputs: what it runs, its
    name, and all data that its workers see. `snapshots`: names and digests."""
    what = _encode((template, name, sorted(snapshots)))
    return hashlib.sha256(what).hexdigest()
