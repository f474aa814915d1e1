"""Parses the parameters of a request into a job's spec: flat parameters, and `spec` as a whole.

Pure; used by `submit`, and by the OpenAPI page for its schemas. Most flat names are those of fields
of `FileJobSpec` and its members; a flat parameter overrides the same field of `spec`. The
parameters `aci` and `gpu` of aksjobscheduler set the placement, unless it is given.
"""

import functools
import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import aksjobscheduler_settings, strict_json

SPEC = "spec"
CALCULATOR, IDENTITY = "calculator", "identity"
BUILTINS = (CALCULATOR, IDENTITY)

FLAT: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "cluster": ("clusterName",),
    "clusterName": ("clusterName",),
    "itemsPerPart": ("itemsPerPart",),
    "bytesPerPart": ("bytesPerPart",),
    "maxParts": ("maxParts",),
    "parallelism": ("parallelism",),
    "badRecords": ("badRecords",),
    "maxFailedRecords": ("maxFailedRecords",),
    "maxFailedPercent": ("maxFailedPercent",),
    "maxCrashes": ("maxCrashes",),
    "priority": ("priority",),
    "suspend": ("suspend",),
    "ttlSecondsAfterFinished": ("ttlSecondsAfterFinished",),
    "placement": ("placement",),
    "format": ("input", "format"),
    "blank": ("input", "blank"),
    "maxLineBytes": ("input", "maxLineBytes"),
    "gzip": ("input", "gzip"),
    "delimiter": ("input", "delimiter"),
    "maxAttempts": ("retry", "maxAttempts"),
    "timeoutSeconds": ("timeouts", "runningSeconds"),
}
"""Path of the field in the spec that each flat parameter sets."""

MAPPERS = ("mapper", "command", "batchRecords", "reducer")
KNOWN = (SPEC, *FLAT, *MAPPERS, *aksjobscheduler_settings.PARAMETERS)

_MAX_REMEMBERED = 2000
"""Maximum total length in characters of the values of parameters whose spec is cached."""

MAX_SPEC_BYTES = 64 << 10
"""Maximum size of a spec as JSON: each document of the job contains it, and thousands of those are
cached."""

MAX_SHELL_CHARS = 8 << 10
"""Maximum length of a command that is split as a shell does it, which takes quadratic time."""

FUNCTION = r"^[^\x00-\x20:]{1,255}:[^\x00-\x20:]{1,255}$"
DIGEST = "^sha256:[0-9a-f]{64}$"
WORD = r"^[^\x00]*$"
"""Patterns of a mapper's fields, which the OpenAPI page has too."""

_Object = dict[str, Any]


def parse_spec(
    given: Mapping[str, str], *, compat: aksjobscheduler_settings.Source | None
) -> filejobs.FileJobSpec:
    """Return the job's spec. Raises BadRequest, whose message has the parameter, its value, and
    what is expected, and UnprocessableContent for `batch=1`.
    """
    items = tuple(given.items())
    if len("".join(given.values())) <= _MAX_REMEMBERED:
        return _parse_cached(items, compat)
    return _parse(given, compat)


@functools.lru_cache(maxsize=256)
def _parse_cached(
    items: tuple[tuple[str, str], ...], compat: aksjobscheduler_settings.Source | None
) -> filejobs.FileJobSpec:
    """Return the job's spec for these parameters. Cached, since clients that create many jobs send
    the same parameters.
    """
    return _parse(dict(items), compat)


def _parse(
    given: Mapping[str, str], compat: aksjobscheduler_settings.Source | None
) -> filejobs.FileJobSpec:
    document = _parse_spec_json(given.get(SPEC))
    if compat is not None:
        document.setdefault("itemsPerPart", compat.items_per_part)
        document.setdefault("parallelism", compat.parallelism)
    one, other = given.get("cluster"), given.get("clusterName")
    if one is not None and other is not None and one != other:
        raise errors.BadRequest(
            f"cluster={one[:100]} and clusterName={other[:100]}: they mean the same, give one"
        )
    for name, text in given.items():
        place = FLAT.get(name)
        if place is not None:
            _set_path(document, place, _parse_value(name, text, place))
    _apply_mappers(document, given)
    _apply_placement(document, given)
    return _spec(document)


def merge_parameters(fields: Mapping[str, str], query: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a form merged with the parameters of the URL, which take precedence."""
    mappers = ("mapper", "command")
    said = any(name in query for name in mappers)
    kept = {name: text for name, text in fields.items() if not (said and name in mappers)}
    return {**kept, **query}


def _parse_spec_json(text: str | None) -> _Object:
    if not text:
        return {}
    try:
        found: _Object = strict_json.to_integers(strict_json.decode_object(text))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise errors.BadRequest(f"spec: not a JSON object: {error}") from error
    spec = _converted(found)  # also checks fields that a parameter overrides
    if "mapper" in found:
        _check_mapper("mapper", spec.mapper)
    if spec.reducer is not None:
        _check_mapper("reducer", spec.reducer)
    return found


def _set_path(document: _Object, place: tuple[str, ...], value: object) -> None:
    for name in place[:-1]:
        document = document.setdefault(name, {})
    document[place[-1]] = value


def _parse_value(name: str, text: str, place: tuple[str, ...]) -> object:
    """Convert the value of one parameter to the type of its field. Each value is checked alone, so
    that the message can name the parameter.
    """
    probe: _Object = {}
    _set_path(probe, place, text)
    try:
        made = msgspec.convert(probe, filejobs.FileJobSpec, strict=False)
    except msgspec.MsgspecError as error:
        raise errors.BadRequest(f"{name}={text[:100]}: {_error_text(error)}") from error
    value: Any = msgspec.to_builtins(made)
    for one in place:
        if one not in value:  # the value is the default, which is omitted
            value = _default(place)
            break
        value = value[one]
    if value is None:  # msgspec decodes "null" as None
        raise errors.BadRequest(f"{name}={text[:100]}: give a value, or leave it out")
    return value


def _default(place: tuple[str, ...]) -> object:
    value: Any = filejobs.FileJobSpec()
    for one in place:
        names = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        value = getattr(value, names[one])
    return msgspec.to_builtins(value)


def _apply_mappers(document: _Object, given: Mapping[str, str]) -> None:
    if "mapper" in given and "command" in given:
        raise errors.BadRequest("mapper and command: give one of them")
    if "mapper" in given:
        document["mapper"] = _mapper("mapper", given["mapper"])
    if "command" in given:
        document["mapper"] = {"command": _command(given["command"])}
    if "reducer" in given:
        document["reducer"] = _mapper("reducer", given["reducer"])
    if "batchRecords" in given:
        text = given["batchRecords"]
        if not asgi.is_number(text):
            raise errors.BadRequest(f"batchRecords={text[:100]}: a whole number is expected")
        document.setdefault("mapper", {"builtin": CALCULATOR})["batchRecords"] = int(text)


def _mapper(name: str, text: str) -> _Object:
    if text in BUILTINS:
        return {"builtin": text}
    module, colon, function = text.partition(":")
    if module.endswith(".py"):
        raise errors.BadRequest(
            f"{name}={text[:100]}: workers have no such file. `kiln upload` sends one along; "
            "a module that they can import is written as package.module:name"
        )
    if colon and module and function:
        return {"function": text}
    raise errors.BadRequest(
        f"{name}={text[:100]}: give {', '.join(BUILTINS)} or a function as package.module:name"
    )


def _command(text: str) -> list[str]:
    """Parse a command: a JSON array of words, or one line with the quoting rules of a shell. No
    shell runs it.
    """
    try:
        if text.lstrip().startswith("["):
            words = msgspec.json.decode(text, type=list[str])
        else:
            if len(text) > MAX_SHELL_CHARS:
                raise ValueError(
                    f"that is longer than {MAX_SHELL_CHARS:,} characters: put it into a script, "
                    "or give a JSON array of words"
                )
            words = shlex.split(text)
    except (ValueError, msgspec.MsgspecError) as error:
        raise errors.BadRequest(f"command={text[:100]}: {error}") from error
    if not words or "\0" in text:
        raise errors.BadRequest("command: give a program, and its arguments")
    return words


def _apply_placement(document: _Object, given: Mapping[str, str]) -> None:
    """Set the placement, unless it is given, from the parameters of aksjobscheduler: `aci` counts
    if it is 1, `gpu` if it is not empty. Raises UnprocessableContent for `batch=1`.
    """
    if given.get("batch") == "1":
        raise errors.UnprocessableContent("batch=1: there is no Azure Batch here; leave it out")
    if given.get("aci") == "1":
        document.setdefault("placement", "aci")
    elif given.get("gpu"):
        document.setdefault("placement", "gpu")


def _converted(document: _Object) -> filejobs.FileJobSpec:
    try:
        return msgspec.convert(document, filejobs.FileJobSpec)
    except msgspec.MsgspecError as error:
        raise errors.BadRequest(f"spec: {_error_text(error)}") from error


def _spec(document: _Object) -> filejobs.FileJobSpec:
    spec = _converted(document)
    if len(msgspec.json.encode(spec)) > MAX_SPEC_BYTES:
        raise errors.BadRequest(
            f"spec: as JSON it is longer than {MAX_SPEC_BYTES:,} bytes: put what is long, a "
            "command say, into a file that workers have"
        )
    _check_mapper("mapper", spec.mapper)
    if spec.reducer is not None:
        _check_mapper("reducer", spec.reducer)
    return spec


def _check_mapper(name: str, mapper: filejobs.Mapper) -> None:
    given = [one for one in ("builtin", "function", "command") if getattr(mapper, one)]
    if len(given) != 1:
        raise errors.BadRequest(
            f"spec.{name}: give one of builtin, function, command"
            + (f", not {' and '.join(given)}" if given else "")
        )
    if mapper.builtin is not None and mapper.builtin not in BUILTINS:
        raise errors.BadRequest(
            f"spec.{name}.builtin: {mapper.builtin[:100]!r} is not one of {', '.join(BUILTINS)}"
        )
    if name == "reducer" and mapper.builtin == CALCULATOR:
        raise errors.BadRequest(f"{name}: {CALCULATOR} maps records and reduces none")
    if mapper.batch_records is not None and (mapper.function is None or name == "reducer"):
        raise errors.BadRequest(
            f"spec.{name}.batchRecords: only a function maps records in batches"
        )
    if mapper.code is not None and mapper.function is None:
        raise errors.BadRequest(f"spec.{name}.code: only a function comes from code")
    _check_syntax(f"spec.{name}", mapper)


def _check_syntax(where: str, mapper: filejobs.Mapper) -> None:
    """Raise an error for values of a mapper that would fail on every worker."""
    for field in ("code", "environment"):
        digest = getattr(mapper, field)
        if digest is not None and not re.fullmatch(DIGEST, digest):
            raise errors.BadRequest(
                f"{where}.{field}: {digest[:100]!r} is no digest of a blob: give sha256:…, or "
                "leave it out"
            )
    if mapper.function is not None and not re.fullmatch(FUNCTION, mapper.function):
        raise errors.BadRequest(
            f"{where}.function: {mapper.function[:100]!r} is no function: write it as "
            "package.module:name"
        )
    if not all(re.fullmatch(WORD, word) for word in mapper.command):
        raise errors.BadRequest(f"{where}.command: no word may have a NUL character in it")


def _error_text(error: Exception) -> str:
    """Return msgspec's error message with the field path first, in the usual notation."""
    text = str(error)
    what, dash, path = text.partition(" - at `")
    if not dash:
        return text
    return f"{path.rstrip('`').removeprefix('$').lstrip('.')}: {what}"
