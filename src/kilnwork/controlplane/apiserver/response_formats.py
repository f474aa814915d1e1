"""Content negotiation: JSON or YAML, and whole objects, metadata only, or a table.

Used by `resource_handler`, `responses`, `lists`, `watches`, `openapi` and `encoding`. Clients list
what they accept (`application/json;as=Table;v=v1;g=meta.k8s.io,…`) with their preferences (RFC 9110
§12.5.1). Clients that accept only protobuf are refused.
"""

import functools

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import statuses

JSON, YAML = "application/json", "application/yaml"
_MEDIA = {JSON: JSON, YAML: YAML, "*/*": JSON, "application/*": JSON}
_SHAPES = {
    "": "object",
    "Table": "table",
    "PartialObjectMetadata": "partial",
    "PartialObjectMetadataList": "partial-list",
}


class ResponseFormat(msgspec.Struct, frozen=True):
    """Format of a response."""

    media: str
    """Media type: JSON or YAML."""
    shape: str
    """`object`, `table`, `partial` or `partial-list`."""


@functools.lru_cache(maxsize=512)
def preferred_format(accept: str) -> ResponseFormat | None:
    """Return the available format that the client prefers, or None when it accepts none."""
    for media, facts in _options(accept):
        media_type = _MEDIA.get(media)
        shape = _SHAPES.get(facts.get("as", ""))
        if media_type is None or shape is None:
            continue
        # Older versions of Table and of partial metadata are not offered.
        if shape != "object" and (facts.get("g") != "meta.k8s.io" or facts.get("v") != "v1"):
            continue
        return ResponseFormat(media_type, shape)
    return None


@functools.lru_cache(maxsize=512)
def error_media_type(accept: str) -> str:
    """Return the format of error responses, JSON or YAML, for any accepted shape."""
    return next((_MEDIA[media] for media, _ in _options(accept) if media in _MEDIA), JSON)


def media_ranges(accept: str) -> list[str]:
    """Return the media ranges of an Accept header, preferred first.

    An empty header accepts `*/*`.
    """
    return [name for name, _ in _options(accept)]


def negotiate_shape(accept: str, *, custom: bool) -> str:
    """Return the shape of the response. Raises 406 when the client accepts none.

    For built-in kinds kube-apiserver refuses unknown media types before anything else, with the
    message of its router.
    """
    preferred = preferred_format(accept)
    if preferred is not None:
        return preferred.shape
    if custom or any(media in _MEDIA for media, _ in _options(accept)):
        raise statuses.not_acceptable(
            f"only the following media types are accepted: {JSON}, {YAML}"
        )
    message = f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}"
    raise statuses.StatusError(406, "NotAcceptable", message, details={})


def negotiate_watch_shape(accept: str, *, custom: bool) -> str:
    """Return the shape of a watch's objects. Raises 406 unless the client accepts JSON."""
    shape = negotiate_shape(accept, custom=custom)
    if error_media_type(accept) != JSON:
        raise statuses.not_acceptable(
            f"only the following media types are accepted: {JSON};stream=watch"
        )
    return shape


def partial(obj: meta.JsonObject) -> meta.JsonObject:
    """Return an object as metav1.PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def _options(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return (media type, parameters) of each option, preferred first; the sort is stable."""
    parsed = []
    for part in accept.split(","):
        name, *parameters = (p.strip() for p in part.split(";"))
        facts = {k: v for k, _, v in (p.partition("=") for p in parameters)}
        parsed.append((name.lower() or "*/*", facts))
    return sorted(parsed, key=lambda option: -_quality(option[1]))


def _quality(facts: dict[str, str]) -> float:
    try:
        return float(facts.get("q", "1"))
    except ValueError:
        return 1.0
