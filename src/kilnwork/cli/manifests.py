"""Reading of YAML and JSON manifests as Kubernetes tools read them, with places for error texts.

YAML is read as by kubectl: timestamps stay text, `1:30` is not a number, duplicate keys are an
error, keys are text. Used by `apply`, `render`, `delete -f`, `run --input` and `job_options`. Does
not know kinds: the server validates objects.
"""

import io
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kilnwork.api import meta, yaml_loader
from kilnwork.cli import errors

_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Manifest:
    """Object in a manifest file, with its place there.

    `line`: the first line of its document, from 1.
    """

    source: str
    line: int
    body: meta.JsonObject

    @property
    def place(self) -> str:
        """Return the place of the object as `file:line`, for error texts."""
        return f"{self.source}:{self.line}"


def read(sources: tuple[str, ...]) -> Iterator[Manifest]:
    """Yield every object of the files and directories in `sources`, in order; `-` is standard
    input.

    Lists (`kind: List` and JSON arrays) are split into their items. Raises `errors.InvalidInput` at
    the first document that is not an object, after yielding those before it.
    """
    for source in sources:
        for name, text in _texts(source):
            yield from parse(text, source=name)


def _texts(source: str) -> Iterator[tuple[str, str]]:
    if source == "-":
        yield "standard input", read_stdin()
        return
    if "://" in source:
        raise errors.InvalidInput(f"{source}: URLs are not read; fetch it and pipe it to `-f -`")
    path = Path(source)
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and p.is_file())
        if not files:
            raise errors.InvalidInput(
                f"{source}: the directory holds no {', '.join(_SUFFIXES)} file"
            )
    else:
        files = [path]
    for file in files:
        yield str(file), read_text(file)


def read_text(path: Path) -> str:
    """Return the text of a file. Raises `errors.InvalidInput` with the file and the reason."""
    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise errors.InvalidInput(f"{path}: {error.strerror or error}") from error


def read_stdin() -> str:
    """Return the text of standard input. Raises `errors.InvalidInput` if it is not UTF-8."""
    return _decoded(sys.stdin.buffer.read(), "standard input")


def _decoded(data: bytes, source: str) -> str:
    """Return a text with line ends as in Python's text files."""
    try:
        return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        raise errors.InvalidInput(f"{source}: not UTF-8 text: {error}") from error


def parse(text: str, *, source: str) -> Iterator[Manifest]:
    """Yield the objects of one manifest text.

    Raises `errors.InvalidInput` with file, line and column.
    """
    for line, value in documents(text, source=source):
        for body in value if isinstance(value, list) else [value]:
            yield from _objects(body, source=source, line=line)


def documents(text: str, *, source: str) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values of a multi-document YAML (or JSON) text, each with its first line."""
    try:
        loader = yaml_loader.Loader(text)
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            if value is not None:
                line = node.start_mark.line + 1
                yield line, _json(value, where=f"{source}:{line}")
    except yaml.MarkedYAMLError as error:
        raise errors.InvalidInput(f"{_place(error, source)}: {_problem(error)}") from error
    except yaml.YAMLError as error:
        raise errors.InvalidInput(f"{source}: {_problem(error)}") from error


def _place(error: yaml.MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    return source if mark is None else f"{source}:{mark.line + 1}:{mark.column + 1}"


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    hint = ""
    if "\\t" in problem or "'\t'" in problem:
        hint = " (YAML is indented with spaces, not tabs)"
    return f"malformed YAML: {problem}{f', {context}' if context else ''}{hint}"


def _json(value: Any, *, where: str, depth: int = 0) -> Any:
    """Return a YAML value as a JSON value: text keys, no dates, no NaN."""
    if depth > _MAX_DEPTH:
        raise errors.InvalidInput(f"{where}: nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {key: _json(item, where=where, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item, where=where, depth=depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.InvalidInput(f"{where}: {value} is not a JSON number")
    if value is None or isinstance(value, str | int | float):
        return value
    raise errors.InvalidInput(f"{where}: a {type(value).__name__} cannot be written as JSON")


def _objects(body: Any, *, source: str, line: int) -> Iterator[Manifest]:
    where = f"{source}:{line}"
    if not isinstance(body, dict):
        raise errors.InvalidInput(f"{where}: an object is expected, not {type(body).__name__}")
    if str(body.get("kind", "")).endswith("List") and isinstance(body.get("items"), list):
        for item in body["items"]:
            yield from _objects(item, source=source, line=line)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(body.get(field), str) or not body[field]:
            raise errors.InvalidInput(f"{where}: the object has no {field}")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise errors.InvalidInput(f"{where}: the object has no metadata")
    yield Manifest(source, line, body)
