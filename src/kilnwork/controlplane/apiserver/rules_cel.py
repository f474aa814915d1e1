"""CEL rules in the schemas of users' definitions (x-kubernetes-validations).

Used by admission on objects that conform to their schema, if the CEL library is installed
(`api.cel_evaluation`). Follows pkg/apiserver/schema/cel of k8s.io/apiextensions-apiserver: `self`
and `oldSelf`, field paths, messages, and ratcheting (KEP-4008): a rule does not check unchanged
parts again. The library implements CEL without the functions that Kubernetes adds: `unenforced`
reports rules that are not evaluated for that reason, and `rules_definitions` warns of them. The
rules of kinds with registered Python rules (`installed_kind_types`) are not evaluated here.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from kilnwork.api import cel_evaluation, meta
from kilnwork.api import schema_generation as schemas
from kilnwork.controlplane.apiserver import builtin, causes

Schema = schemas.Schema

_RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import"),
        *("in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void"),
        "while",
    }
)
_ESCAPED = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
"""Escapes in rules for property names that are not identifiers."""


def validate(
    served: builtin.ServedResource, obj: meta.JsonObject, *, old: meta.JsonObject | None = None
) -> Iterator[causes.Cause]:
    """Yield a cause for each rule of the definition that `obj` breaks."""
    if served.schema is not None and served.rules and cel_evaluation.available():
        yield from _walk(served.schema, obj, old, "")


def unenforced(rule: meta.JsonObject) -> str:
    """Return why this server does not evaluate a rule, or "" if it does."""
    if not cel_evaluation.available():
        return "this server evaluates CEL only with the package common-expression-language"
    if rule.get("optionalOldSelf"):
        return "this server knows no optionalOldSelf"
    problem = cel_evaluation.load(rule.get("rule") or "")[1]
    return f"this server {problem}" if problem else ""


def _walk(schema: Schema, value: Any, old: Any, path: str) -> Iterator[causes.Cause]:
    for rule in schema.get(schemas.RULES) or ():
        cause = _judged(rule, schema, value, old=old, path=path)
        if cause is not None:
            yield cause
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            field_schema = _below(schema, name)
            if field_schema is not None:
                yield from _walk(
                    field_schema, item, before.get(name), f"{path}.{name}" if path else name
                )
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for position, item in enumerate(value):
            before = _same_item(keys, item, old)
            yield from _walk(schema["items"], item, before, f"{path}[{position}]")


def _below(schema: Schema, name: str) -> Schema | None:
    field_schema = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
    return field_schema if isinstance(field_schema, dict) else None


def _same_item(keys: Sequence[str], item: Any, old: Any) -> Any:
    """Return the old item with the same keys, or None if there is none or the list has no keys."""
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return None
    values = [item.get(key) for key in keys]
    matching = (
        one for one in old if isinstance(one, dict) and [one.get(k) for k in keys] == values
    )
    return next(matching, None)


def _judged(
    rule: meta.JsonObject, schema: Schema, value: Any, *, old: Any, path: str
) -> causes.Cause | None:
    if value is None or unenforced(rule):
        return None
    text = rule["rule"]
    program = cel_evaluation.load(text)[0]
    about_change = "oldSelf" in program.variables()
    # A rule about a change needs an old value. All other rules skip unchanged values.
    if old is None if about_change else old == value:
        return None
    try:
        variables = {"self": _cel_value(schema, value)}
        if about_change:
            variables["oldSelf"] = _cel_value(schema, old)
        if program.execute(variables) is True:
            return None
        why = _message(rule, variables)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        why = f"{error} evaluating rule: {rule.get('message') or text}"
    return _cause(rule, schema, (path + rule.get("fieldPath", "")).lstrip("."), why)


def _message(rule: meta.JsonObject, variables: dict[str, Any]) -> str:
    plain = str(rule.get("message") or f"failed rule: {rule['rule'].strip()}")
    expression = rule.get("messageExpression")
    if not expression or cel_evaluation.load(expression)[1]:
        return plain
    try:
        text = cel_evaluation.load(expression)[0].execute(variables)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return plain
    # As documented for messageExpression: an empty or multi-line result is not used.
    return text if isinstance(text, str) and text.strip() and "\n" not in text else plain


def _cause(rule: meta.JsonObject, schema: Schema, field: str, why: str) -> causes.Cause:
    field, kind = field or "<nil>", schema.get("type", "")
    match rule.get("reason"):
        case "FieldValueForbidden":
            return causes.forbidden(field, why)
        case "FieldValueRequired":
            return causes.required(field, why)
        case "FieldValueDuplicate":
            return causes.duplicate(field, kind)
    return causes.invalid(field, kind, why)


def _cel_value(schema: Schema, value: Any) -> Any:
    """Return a value as CEL rules see it.

    Property names are escaped, values of type `number` are doubles, and timestamps are parsed.
    """
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {
            _escaped(name) if name in properties else name: _cel_value(
                _below(schema, name) or {}, item
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items")
        return [_cel_value(items if isinstance(items, dict) else {}, item) for item in value]
    # CEL does not mix int and double, and JSON may write a double as 1.
    if schema.get("type") == "number" and type(value) is int:
        return float(value)
    if schema.get("format") == "date-time" and isinstance(value, str):
        return datetime.fromisoformat(value)
    return value


def _escaped(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[./-]", lambda found: _ESCAPED[found[0]], name)
