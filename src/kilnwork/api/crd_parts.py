"""Parts of our CustomResourceDefinitions, and the texts of their rules.

Used by `crd` and `crd_jobs`, which have a `KindDefinition` for each kind, and by `validation`,
which says the same in Python. No definition is here.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from kilnwork.api import meta, schema


class KindDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a definition beside names and schema."""

    description: str
    spec: Any = None
    needs_spec: bool = False
    status: Any = None
    root: dict[str, schema.Schema] = msgspec.field(default_factory=dict)
    columns: tuple[meta.JsonObject, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: dict[str, str] = msgspec.field(default_factory=dict)
    """Paths of the numbers of its `scale` subresource; empty when it has none."""
    additions: dict[str, schema.Schema] = msgspec.field(default_factory=dict)
    """Schema keywords by dotted path of properties; `[]` steps into the items of a list, and the
    empty path is the object itself."""
    described_at: dict[str, str] = msgspec.field(default_factory=dict)
    """Objects whose schema is left out, by path, each with the path of an object of the same type:
    a definition that repeated a large one would be too large itself."""


def column(
    name: str, path: str, *, type_: str = "string", wide: bool = False, about: str = ""
) -> meta.JsonObject:
    """Return a printer column; one that is `wide` is shown with `-o wide` only."""
    made: meta.JsonObject = {"name": name, "type": type_, "jsonPath": path}
    if wide:
        made["priority"] = 1
    if about:
        made["description"] = about
    return made


def rule(expression: str, message: str, **more: str) -> meta.JsonObject:
    """Return a rule in CEL."""
    return {"rule": expression, "message": message, **more}


def rules(*made: meta.JsonObject) -> schema.Schema:
    """Return the schema keyword with these rules."""
    return {schema.RULES: list(made)}


AGE = column("Age", ".metadata.creationTimestamp", type_="date")
CONDITIONS = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
TIME = {"format": "date-time"}

MAX_INPUTS = 256
"""Bound of `inputs`: without one the real server cannot bound the cost of a CEL rule."""

RUN_RULE = "run may only rise"
CALL_RULE = "give either call, or command with args"
POD_RULE = "give either pod, or command with args: containers have their own"
INPUT_RULE = "exactly one of object and task must be given"

ALONE = ("workflow", "customResource", "http", "external", "function")
"""Fields of a task each of which says all that runs: none of the others is beside it."""


def beside(field: str) -> list[str]:
    """Return the fields of which none may be given beside `field`, one of ALONE."""
    return ["command", "args", "call", "pod", *(one for one in ALONE if one != field)]


def alone_rule(field: str) -> str:
    """Return the message for another field beside `field`, one of ALONE."""
    return f"give {field} without {', '.join(beside(field))}"


def _alone(field: str) -> meta.JsonObject:
    others = " || ".join(f"has(self.{one})" for one in beside(field))
    return rule(f"!has(self.{field}) || !({others})", alone_rule(field))


def name_is_short(longest: int) -> meta.JsonObject:
    """Return the rule about the length of an object's name."""
    return rule(f"self.metadata.name.size() <= {longest}", name_rule(longest))


def name_rule(longest: int) -> str:
    """Return the message for a longer name."""
    return f"must be no more than {longest} characters"


def run_rises() -> meta.JsonObject:
    """Return the rule about `run` of a spec."""
    return rule(
        "!has(oldSelf.run) || (has(self.run) && self.run >= oldSelf.run)",
        RUN_RULE,
        fieldPath=".run",
    )


def task_rules() -> Iterator[meta.JsonObject]:
    """Yield the rules about the object at which a `task.TaskTemplate` stands."""
    yield rule("!has(self.pod) || !(has(self.command) || has(self.args))", POD_RULE)
    yield from (_alone(field) for field in ALONE)
    yield rule("!has(self.call) || !(has(self.command) || has(self.args))", CALL_RULE)


def task_inputs(path: str) -> dict[str, schema.Schema]:
    """Return the additions for the inputs of the `task.TaskTemplate` at `path`."""
    return {
        f"{path}.inputs": {
            "maxItems": MAX_INPUTS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        f"{path}.inputs.[]": rules(rule("has(self.object) != has(self.task)", INPUT_RULE)),
    }
