"""Validation of objects of kilnwork's kinds before they are sent to a server.

Used by `apply` and `run-job`. The API server of a cluster knows only their schemas and CEL
rules: it accepts an invalid cron expression, and a controller reports it afterwards. Here the rules
of the embedded API server apply to both, with the same texts. Rights, namespaces and unknown fields
are left to the server, which may be newer than this program.
"""

import functools
from collections.abc import Mapping

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.cli import embedded_crds
from kilnwork.controlplane.apiserver import (
    builtin,
    definitions,
    metadata,
    patches,
    rules_custom,
    rules_meta,
    statuses,
    typed_decoding,
)

_SUFFIX = "xxxxx"
"""Placeholder for the random suffix of a generated name."""


def find_refusal(kind: api_resources.Resource, new: meta.JsonObject) -> str | None:
    """Return the message with which the embedded API server would refuse a new object.

    None if it would accept the object, or if the kind is not kilnwork's.
    """
    served = _served().get(kind)
    obj = None if served is None else _read(served, new)
    if served is None or obj is None:
        return None
    named = metadata.cleaned(metadata.metadata_of(obj))
    if not named.get("name") and (prefix := named.get("generateName")):
        named["name"] = f"{prefix[: metadata.MAX_GENERATED_BASE]}{_SUFFIX}"
    obj["metadata"] = named
    found = [*rules_meta.validate(kind, obj), *rules_custom.validate(served, obj)]
    return _in_words(kind, obj, found)


def find_refusal_of_patch(
    kind: api_resources.Resource, live: meta.JsonObject, patch: meta.JsonObject
) -> str | None:
    """Return the message with which the embedded API server would refuse a merge patch (RFC 7386).

    None if it would accept the patch. Problems that `live` already has are ignored.
    """
    served = _served().get(kind)
    if served is None:
        return None
    old, obj = _read(served, live), _read(served, patches.merge(live, patch))
    if old is None or obj is None:
        return None
    obj["metadata"] = metadata.for_update(metadata.metadata_of(obj), old["metadata"])
    found = [*rules_meta.validate_update(old, obj), *rules_custom.validate(served, obj, old=old)]
    return _in_words(kind, obj, found)


@functools.cache
def _served() -> Mapping[api_resources.Resource, builtin.ServedResource]:
    return {
        served.resource: msgspec.structs.replace(served, rules=False, extension=kind)
        for kind in embedded_crds.EXTENSIONS.kinds
        for served in definitions.served_by(kind.definition)
    }


def _read(served: builtin.ServedResource, given: meta.JsonObject) -> meta.JsonObject | None:
    """Return an object as the embedded API server reads it: with defaults, and without status.

    Other requests change the status. None for an object that the server cannot read, or that has
    fields of a newer version.
    """
    try:
        obj, unknown = typed_decoding.read(
            served, {k: v for k, v in given.items() if k != "status"}
        )
    except (typed_decoding.Unreadable, statuses.StatusError):
        return None
    return None if unknown else obj


def _in_words(
    kind: api_resources.Resource, obj: meta.JsonObject, found: list[statuses.Cause]
) -> str | None:
    if not found:
        return None
    return statuses.invalid(kind, obj["metadata"].get("name", ""), found).message
