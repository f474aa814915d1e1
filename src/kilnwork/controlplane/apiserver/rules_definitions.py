"""Validation of CustomResourceDefinitions, as in k8s.io/apiextensions-apiserver.

Used by admission. The rules cover structural schemas, names, and forbidden changes. Types and cost
of CEL rules are not checked; `rules_cel` evaluates them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kilnwork.api import meta, names
from kilnwork.api import schema_generation as schemas
from kilnwork.controlplane.apiserver import causes, definitions, patterns, rules_cel

_APPROVAL = "api-approved.kubernetes.io"
_COMMUNITY = ("k8s.io", "kubernetes.io")
_SCOPES = ("Cluster", "Namespaced")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def validate(definition: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of a definition."""
    spec = definition.get("spec") or {}
    wanted = spec.get("names") or {}
    name = definition["metadata"].get("name", "")
    plural, group = wanted.get("plural", ""), spec.get("group", "")
    if name and name != f"{plural}.{group}":
        yield causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield causes.required("spec.group")
    elif problem := names.subdomain_problem(group):
        yield causes.invalid("spec.group", group, problem)
    elif "." not in group:
        yield causes.invalid("spec.group", group, "should be a domain with at least one dot")
    else:
        yield from _approval(definition, group)
    scope = spec.get("scope", "")
    if not scope:
        yield causes.required("spec.scope")
    elif scope not in _SCOPES:
        yield causes.unsupported("spec.scope", scope, _SCOPES)
    yield from _versions(spec.get("versions") or ())
    yield from _names(wanted)


def _approval(definition: meta.JsonObject, group: str) -> Iterator[causes.Cause]:
    """Yield a cause if a group of Kubernetes itself lacks the approval annotation (KEP-2337)."""
    if ".".join(group.split(".")[-2:]) not in _COMMUNITY:
        return
    approval = (definition["metadata"].get("annotations") or {}).get(_APPROVAL) or ""
    approval = str(approval)
    field = f"metadata.annotations[{_APPROVAL}]"
    text = f'protected groups must have approval annotation "{_APPROVAL}"'
    where = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not approval:
        yield causes.required(field, f"{text}, {where}")
    elif not approval.startswith(("unapproved", "https://", "http://")):
        why = f'{text} with either a URL or a reason starting with "unapproved", {where}'
        yield causes.invalid(field, approval, why)


def validate_update(old: meta.JsonObject, new: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the forbidden changes of a definition.

    The group cannot change, and stored versions cannot be removed. Scope and kind cannot change
    once the definition is established.
    """
    before, after = old["spec"], new["spec"]
    if before.get("group") != after.get("group"):
        yield causes.invalid("spec.group", after.get("group"), causes.IMMUTABLE)
    established = definitions.is_established(old)
    if established and before.get("scope") != after.get("scope"):
        yield causes.invalid("spec.scope", after.get("scope"), causes.IMMUTABLE)
    if established and before["names"].get("kind") != after["names"].get("kind"):
        yield causes.invalid("spec.names.kind", after["names"].get("kind"), causes.IMMUTABLE)
    stored = (old.get("status") or {}).get("storedVersions") or ()
    version_names = [v.get("name") for v in after.get("versions") or ()]
    for position, version in enumerate(stored):
        if version not in version_names:
            text = f"missing from spec.versions; {version} was previously a storage version, and "
            text += f"must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"  # noqa: E501
            yield causes.invalid(f"status.storedVersions[{position}]", version, text)


def warnings(definition: meta.JsonObject) -> Iterator[str]:
    """Yield a warning for each CEL rule that is stored but not enforced."""
    for version in definition["spec"].get("versions") or ():
        rules = schemas.rules_in(version.get("schema"))
        for why in dict.fromkeys(filter(None, map(rules_cel.unenforced, rules))):
            yield f"spec.versions[{version.get('name')}]: a rule is kept and not held: {why}"


def _versions(versions: Sequence[Mapping[str, Any]]) -> Iterator[causes.Cause]:
    storage = [v for v in versions if v.get("storage")]
    seen: set[str] = set()
    for position, version in enumerate(versions):
        field = f"spec.versions[{position}]"
        name = version.get("name", "")
        if problem := names.label_1035_problem(name):
            yield causes.invalid(f"{field}.name", name, problem)
        if name in seen:
            yield causes.duplicate(f"{field}.name", name)
        seen.add(name)
        yield from _schema_of(version, field, alone=len(versions) == 1)
        yield from _columns(version, field)
    if len(storage) != 1:
        text = "must have exactly one version marked as storage version"
        yield causes.invalid("spec.versions", [v.get("name") for v in versions], text)
        yield causes.invalid("status.storedVersions", None, "must have at least one stored version")


def _schema_of(version: Mapping[str, Any], field: str, *, alone: bool) -> Iterator[causes.Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield causes.required(f"{field}.schema.openAPIV3Schema", "schemas are required")
        return
    # The real server validates its internal version, where a single schema has this path.
    path = "spec.validation.openAPIV3Schema" if alone else f"{field}.schema.openAPIV3Schema"
    yield from _structural(schema, path)
    if not schema.get("type"):
        yield causes.required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield causes.invalid(f"{path}.type", schema["type"], "must be object at the root")


def _structural(schema: Mapping[str, Any], path: str) -> Iterator[causes.Cause]:
    """Check that the schema is structural: fields have types, and lists of type map have keys."""
    type_ = schema.get("type")
    if type_ and type_ not in _TYPES:
        yield causes.unsupported(f"{path}.type", type_, _TYPES)
    for name, below in (schema.get("properties") or {}).items():
        at = f"{path}.properties[{name}]"
        if not _may_be_untyped(below):
            yield causes.required(f"{at}.type", "must not be empty for specified object fields")
        yield from _structural(below, at)
    items = schema.get("items")
    if isinstance(items, dict):
        if not _may_be_untyped(items):
            text = "must not be empty for specified array items"
            yield causes.required(f"{path}.items.type", text)
        yield from _structural(items, f"{path}.items")
    elif type_ == "array":
        yield causes.required(f"{path}.items", "must be specified")
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        if not _may_be_untyped(additional):
            text = "must not be empty for specified object fields"
            yield causes.required(f"{path}.additionalProperties.type", text)
        yield from _structural(additional, f"{path}.additionalProperties")
        if schema.get("properties"):
            text = "additionalProperties and properties are mutual exclusive"
            yield causes.forbidden(f"{path}.additionalProperties", text)
    yield from _list_type(schema, path)
    yield from _pattern(schema, path)


def _pattern(schema: Mapping[str, Any], path: str) -> Iterator[causes.Cause]:
    pattern = schema.get("pattern")
    if pattern:
        try:
            patterns.compiled(pattern)
        except patterns.BadPattern as error:
            text = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
            yield causes.invalid(f"{path}.pattern", pattern, text)


def _list_type(schema: Mapping[str, Any], path: str) -> Iterator[causes.Cause]:
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys")
    if list_type not in (None, "atomic", "set", "map"):
        yield causes.unsupported(
            f"{path}.x-kubernetes-list-type", list_type, ("atomic", "map", "set")
        )
    if list_type == "map" and not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield causes.required(f"{path}.x-kubernetes-list-map-keys", text)


def _may_be_untyped(schema: Mapping[str, Any]) -> bool:
    return bool(
        schema.get("type")
        or schema.get("x-kubernetes-int-or-string")
        or schema.get("x-kubernetes-preserve-unknown-fields")
    )


def _columns(version: Mapping[str, Any], field: str) -> Iterator[causes.Cause]:
    for position, column in enumerate(version.get("additionalPrinterColumns") or ()):
        at = f"{field}.additionalPrinterColumns[{position}]"
        for name in ("name", "type", "jsonPath"):
            if not column.get(name):
                yield causes.required(f"{at}.{name}")


def _names(wanted: Mapping[str, Any]) -> Iterator[causes.Cause]:
    for name, judged in (
        ("plural", wanted.get("plural", "")),
        ("singular", wanted.get("singular", "")),
        # Kinds have capitals: their lower-case form must be a label.
        ("kind", str(wanted.get("kind", "")).lower()),
        ("listKind", str(wanted.get("listKind", "")).lower()),
    ):
        given = wanted.get(name, "")
        if not given:
            yield causes.required(f"spec.names.{name}")
        elif problem := names.label_1035_problem(judged):
            yield causes.invalid(f"spec.names.{name}", given, problem)
    for more in ("shortNames", "categories"):
        for position, given in enumerate(wanted.get(more) or ()):
            if problem := names.label_1035_problem(given):
                yield causes.invalid(f"spec.names.{more}[{position}]", given, problem)
    if wanted.get("listKind") and wanted.get("listKind") == wanted.get("kind"):
        text = "kind and listKind may not be the same"
        yield causes.invalid("spec.names.listKind", wanted["listKind"], text)
