"""Decoding of request bodies (JSON, YAML or protobuf) into JSON objects.

Used by `app`, `resource_handler`, `deletion`, `patches` and `scale_subresource`. Bodies that are
nested too deep are rejected before anything recursive reads them: Python's own limit depends on how
deep the caller already is, and the C parser behind PyYAML has none and would crash the process. A
YAML alias counts with the size of its anchor, so that a few lines cannot expand to gigabytes.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import yaml

from kilnwork.controlplane.apiserver import protobuf, statuses

MAX_DEPTH = 256
"""Nesting of objects and arrays: far below any recursion limit, far above sensible data."""

MAX_YAML_NODES = 1_000_000
"""Values in a YAML document, where each use of an alias counts all values of its anchor."""

_NO_JSON = "couldn't get version/kind; json parse error: "
_TOO_DEEP = f"{_NO_JSON}nested more than {MAX_DEPTH} levels deep"
_CYAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def decode_object(raw: bytes, content_type: str) -> dict[str, Any]:
    """Return the JSON object in a request body.

    Raises 400 for a body that is not an object, 415 for an unsupported media type.
    """
    decode = _DECODERS.get(content_type)
    if decode is None:
        raise statuses.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            f"application/json, application/yaml, {protobuf.MEDIA_TYPE}"
        )
    try:
        decoded = decode(raw)
    except protobuf.UnknownKind as error:
        raise statuses.unsupported_media_type(str(error)) from error
    except protobuf.ProtobufError as error:
        raise statuses.bad_request(str(error)) from error
    except RecursionError as error:
        raise statuses.bad_request(_TOO_DEEP) from error
    except (ValueError, TypeError, yaml.YAMLError, msgspec.MsgspecError) as error:
        plain = content_type == "application/json"
        why = json_problem(raw, error) if plain else error
        raise statuses.bad_request(f"{_NO_JSON}{why}") from error
    # As Go does: null leaves the object empty.
    if decoded is None and raw.strip():
        return {}
    if not isinstance(decoded, dict):
        raise statuses.bad_request(f"{_NO_JSON}the body must be a JSON object")
    return decoded


def without_type(message: str) -> str:
    """Return an error text of `decode_object` without the prefix that names the expected kind."""
    at = message.find(_NO_JSON)
    return message[at:] if at > 0 else message


def decode_applied(raw: bytes) -> dict[str, Any]:
    """Return the object in the body of an apply patch, which is YAML or JSON. Raises 400."""
    # YAML parsers read JSON too, but take much longer.
    plain = raw.lstrip().startswith(b"{")
    try:
        decoded = _from_json(raw) if plain else _from_yaml(raw)
    except (ValueError, TypeError, yaml.YAMLError, msgspec.MsgspecError, RecursionError) as error:
        raise statuses.bad_request(
            f"error decoding YAML: error converting YAML to JSON: yaml: {error}"
        ) from error
    if not isinstance(decoded, dict):
        raise statuses.bad_request(f"error decoding YAML: {_NO_JSON}the body must be an object")
    return decoded


def json_problem(raw: bytes, error: Exception) -> str:
    """Return the syntax error in a JSON text, in the words of Go's decoder."""
    text = str(error)
    if not raw.strip() or "truncated" in text:
        return "unexpected end of JSON input"
    target = re.search(r"\(byte (\d+)\)", text)
    if target and int(target[1]) < len(raw):
        letter = chr(raw[int(target[1])])
        return f"invalid character '{letter}' looking for beginning of value"
    return text


def check_depth(raw: bytes) -> None:
    """Raise 400 for a JSON text that is nested too deep.

    Syntax errors are left to the decoder.
    """
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return
    try:
        check_nesting(msgspec.json.decode(raw))
    except RecursionError as error:
        raise statuses.bad_request(_TOO_DEEP) from error
    except msgspec.MsgspecError:
        return


def _from_json(raw: bytes) -> Any:
    decoded = msgspec.json.decode(raw)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        check_nesting(decoded)
    return decoded


def check_nesting(decoded: Any) -> None:
    """Raise 400 for a decoded value that is nested too deep.

    The check is not recursive.
    """
    level = [decoded]
    for _ in range(MAX_DEPTH):
        below = (v.values() if isinstance(v, dict) else v for v in level)
        level = [v for values in below for v in values if isinstance(v, dict | list)]
        if not level:
            return
    raise statuses.bad_request(_TOO_DEEP)


def _from_protobuf(raw: bytes) -> Any:
    decoded = protobuf.decode(raw)
    check_nesting(decoded)
    return decoded


def _from_yaml(raw: bytes) -> Any:
    _check_yaml(raw)
    # Types that JSON lacks (dates, number keys, bytes) become what msgspec encodes them as.
    return msgspec.json.decode(msgspec.json.encode(yaml.load(raw, _CYAML)))  # noqa: S506  safe one


def _check_yaml(raw: bytes) -> None:
    """Check depth and size of a YAML document by its parse events, without recursion."""
    nodes = 0
    open_: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    for event in yaml.parse(raw, _CYAML):
        if isinstance(event, yaml.AliasEvent):
            nodes += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
        elif isinstance(event, yaml.CollectionStartEvent):
            # What is counted until the end of a collection is the size of its anchor.
            open_.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        if len(open_) > MAX_DEPTH:
            raise statuses.bad_request(_TOO_DEEP)
        if nodes > MAX_YAML_NODES:
            raise statuses.bad_request(f"{_NO_JSON}document contains excessive aliasing")


_DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    "application/json": _from_json,
    "application/yaml": _from_yaml,
    "text/yaml": _from_yaml,
    protobuf.MEDIA_TYPE: _from_protobuf,
}
