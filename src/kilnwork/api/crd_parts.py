"""Parts of our CustomResourceDefinitions, and the texts of their rules.

Used by `crd` and its parts, such as `crd_jobs`, which have a `KindDefinition` for each kind, and by
`task_validation` and `job_validation`, which have the same rules in Python. No complete definition
is here.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from kilnwork.api import meta, schema_generation


class KindDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the CustomResourceDefinition of a kind, besides its names and its schema."""

    description: str
    spec: Any = None
    needs_spec: bool = False
    status: Any = None
    root: dict[str, schema_generation.Schema] = msgspec.field(default_factory=dict)
    columns: tuple[meta.JsonObject, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: dict[str, str] = msgspec.field(default_factory=dict)
    """Paths of the numbers of the `scale` subresource; empty if there is none."""
    additions: dict[str, schema_generation.Schema] = msgspec.field(default_factory=dict)
    """Schema keywords by dotted path of properties. `[]` steps into the items of a list, and the
    empty path is the object itself."""
    described_at: dict[str, str] = msgspec.field(default_factory=dict)
    """Objects whose schema is omitted, by path, each with the path of an object of the same
    type. A definition that repeated a large schema would exceed its size limit."""


def column(
    name: str, path: str, *, type_: str = "string", wide: bool = False, about: str = ""
) -> meta.JsonObject:
    """Return a printer column. If `wide` is true, it is shown only with `-o wide`."""
    made: meta.JsonObject = {"name": name, "type": type_, "jsonPath": path}
    if wide:
        made["priority"] = 1
    if about:
        made["description"] = about
    return made


def rule(expression: str, message: str, **more: str) -> meta.JsonObject:
    """Return a CEL rule."""
    return {"rule": expression, "message": message, **more}


def rules(*made: meta.JsonObject) -> schema_generation.Schema:
    """Return the schema keyword that contains the given CEL rules."""
    return {schema_generation.RULES: list(made)}


AGE = column("Age", ".metadata.creationTimestamp", type_="date")
CONDITIONS = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
TIME = {"format": "date-time"}

MAX_INPUTS = 256
"""Maximum length of `inputs`: without a bound, the real API server cannot bound the cost of a
CEL rule."""

RUN_RULE = "run may only rise"
CALL_RULE = "give either call, or command with args"
POD_RULE = "give either pod, or command with args: containers have their own"
INPUT_RULE = "exactly one of object and task must be given"

ALONE = ("workflow", "customResource", "http", "external", "function")
"""Fields of a task that describe all that runs: none of the other fields may be set together
with one of them."""


def beside(field: str) -> list[str]:
    """Return the fields that may not be set together with `field`, one of ALONE."""
    return ["command", "args", "call", "pod", *(one for one in ALONE if one != field)]


def alone_rule(field: str) -> str:
    """Return the message for another field set together with `field`, one of ALONE."""
    return f"give {field} without {', '.join(beside(field))}"


def _alone(field: str) -> meta.JsonObject:
    others = " || ".join(f"has(self.{one})" for one in beside(field))
    return rule(f"!has(self.{field}) || !({others})", alone_rule(field))


def name_is_short(longest: int) -> meta.JsonObject:
    """Return the CEL rule that limits the length of an object's name."""
    return rule(f"self.metadata.name.size() <= {longest}", name_rule(longest))


def name_rule(longest: int) -> str:
    """Return the message for a name longer than `longest`."""
    return f"must be no more than {longest} characters"


def run_rises() -> meta.JsonObject:
    """Return the rule that `run` of a spec may only rise."""
    return rule(
        "!has(oldSelf.run) || (has(self.run) && self.run >= oldSelf.run)",
        RUN_RULE,
        fieldPath=".run",
    )


def task_rules() -> Iterator[meta.JsonObject]:
    """Yield the rules about a `task.TaskTemplate` object."""
    yield rule("!has(self.pod) || !(has(self.command) || has(self.args))", POD_RULE)
    yield from (_alone(field) for field in ALONE)
    yield rule("!has(self.call) || !(has(self.command) || has(self.args))", CALL_RULE)


def task_inputs(path: str) -> dict[str, schema_generation.Schema]:
    """Return the additions to the schema for the inputs of the `task.TaskTemplate` at `path`."""
    return {
        f"{path}.inputs": {
            "maxItems": MAX_INPUTS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        f"{path}.inputs.[]": rules(rule("has(self.object) != has(self.task)", INPUT_RULE)),
    }
