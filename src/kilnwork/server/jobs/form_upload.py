"""Streaming parser of upload forms: collects fields, and passes on the file in pieces (RFC 7578,
RFC 2046 §5.1).

Nothing is spooled: the content of the field `file` is passed on as it arrives. Parsed by
python-multipart. Used by `submit`, in one thread at a time. Blocks if the receiver of the file
does.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Protocol

from python_multipart import exceptions, multipart

from kilnwork.server import errors

FILE = "file"
FIELD_BYTES = 1 << 20
"""Maximum total size of all fields except the file; the spec of a job is shorter."""

MAX_FIELDS = 100
"""Maximum number of fields; about thirty have a meaning."""

MAX_HEADER_BYTES = 16 << 10
"""Maximum size of all headers of one part: a name, a file name, a type."""

HELD_BYTES = 64 << 10
"""Number of bytes of the file that are held back, so that fields may follow a small file."""

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # the response has the error

_MAX_HEAD = 70 + 4
"""Maximum length of the line with a boundary, which has at most 70 characters (RFC 2046 §5.1.1),
preceded by `--` and followed by a line end."""

_PARAMETER = re.compile(r';\s*boundary\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', re.IGNORECASE)
_ALLOWED = re.compile(rb"[0-9A-Za-z'()+_,\-./:=? ]{0,199}[0-9A-Za-z'()+_,\-./:=?]")


class Target(Protocol):
    """Receiver of the file in a form. `slow`: as in `body.Sink`."""

    @property
    def slow(self) -> bool: ...

    def process(self, piece: bytes) -> None:
        """Process the next bytes of the file."""
        ...


Opener = Callable[[dict[str, str]], Target]
"""Creates the target from the fields that have arrived."""


def is_form(content_types: list[str]) -> bool | None:
    """Return whether a request's body is a form: True for `multipart/form-data`, None for other
    multipart types, and False for any other type, whose body is the file itself.
    """
    parts = [one for one in content_types if one.strip().lower().startswith("multipart/")]
    if not parts:
        return False
    return any(one.strip().lower().startswith("multipart/form-data") for one in parts) or None


def boundaries(content_types: list[str]) -> list[bytes]:
    """Return all boundaries that the Content-Type headers name. curl appends its own boundary to
    one that the user has given.
    """
    found = [m for one in content_types for m in _PARAMETER.findall(one)]
    texts = [re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for quoted, bare in found]
    return [text.encode("latin-1") for text in texts]


def _choose_boundary(named: list[bytes], head: bytes) -> bytes:
    """Return the boundary of a form: the named one with which the body begins, else the last one
    named, or if none is named the line with which the body begins.
    """
    line = head.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r \t")
    first = line.removeprefix(b"--") if line.startswith(b"--") else b""
    for one in named:
        if first in (one, one + b"--"):
            return one
    if named:
        return named[-1]
    if first and _ALLOWED.fullmatch(first):
        return first
    raise errors.BadRequest(
        "multipart/form-data without a boundary: let your client set Content-Type by itself "
        "(curl -F file=@FILE)"
    )


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except exceptions.FormParserError as error:
        raise errors.BadRequest(f"the form cannot be read: {error}") from error


class Form:
    """Parser of one form (a `body.Sink`). After the last byte, `finish` checks that the body was a
    form with a file.

    The target is created when more than `HELD_BYTES` of the file have arrived, or at the end of the
    form, from the `fields` that have arrived by then (`before`). Fields may follow; the caller
    decides what they can still change.
    """

    def __init__(self, named: list[bytes], opener: Opener) -> None:
        self._named = named
        self._opener = opener
        self._parser: multipart.MultipartParser | None = None
        self._head = b""
        self.fields: dict[str, str] = {}
        self.before: dict[str, str] = {}
        self._target: Target | None = None
        self._held: bytearray | None = None
        self._ended = False
        self._field_bytes = 0
        self._count = 0
        self._name = ""
        self._in_file = False
        self._value = bytearray()
        self._header = bytearray()
        self._header_value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0

    @property
    def slow(self) -> bool:
        """Whether the receiver of the file is slow (`body.Sink.slow`)."""
        return self._target is not None and self._target.slow

    def process(self, piece: bytes) -> None:
        """Parse the next bytes of the body. Raises BadRequest, ContentTooLarge, and the exceptions
        of the target.
        """
        if self._parser is None:
            self._head += piece
            if len(self._head) < _MAX_HEAD and b"\n" not in self._head.lstrip(b"\r\n"):
                return
            piece, self._head = self._head, b""
            self._parser = self._make_parser(piece)
        self._parse(self._parser, piece)

    def finish(self) -> None:
        """End the form after its last byte. Raises BadRequest if it is incomplete or has no
        file.
        """
        if self._parser is None and self._head:
            self._parse(self._make_parser(self._head), self._head)
        if not self._ended:
            raise errors.BadRequest(
                "the form breaks off before its last boundary: nothing was kept of it, send it "
                "again"
            )
        if self._target is None:
            if self._held is None:
                raise errors.BadRequest(
                    f"the form has no field named {FILE!r}: send one (curl -F {FILE}=@FILE)"
                )
            self._open(self._held)

    def _open(self, held: bytearray) -> None:
        self.before = dict(self.fields)
        self._target = self._opener(self.before)
        self._target.process(bytes(held))
        held.clear()

    def _make_parser(self, head: bytes) -> multipart.MultipartParser:
        callbacks: multipart.MultipartCallbacks = {
            "on_part_begin": self._part_begin,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value_,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_end": self._end,
        }
        with _convert_errors():
            return multipart.MultipartParser(_choose_boundary(self._named, head), callbacks)

    def _parse(self, parser: multipart.MultipartParser, piece: bytes) -> None:
        with _convert_errors():
            parser.write(piece)

    def _part_begin(self) -> None:
        self._count += 1
        if self._count > MAX_FIELDS:
            raise errors.BadRequest(
                f"the form has more than {MAX_FIELDS} fields: send those that are documented"
            )
        self._headers = {}
        self._header_bytes = 0
        self._value = bytearray()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]
        self._count_header(end - start)

    def _header_value_(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        self._count_header(end - start)

    def _count_header(self, count: int) -> None:
        self._header_bytes += count
        if self._header_bytes > MAX_HEADER_BYTES:
            raise errors.BadRequest(
                f"a part of the form has more than {MAX_HEADER_BYTES:,} bytes of headers: send its "
                "name and type alone"
            )

    def _header_end(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._header_value)
        self._header.clear()
        self._header_value.clear()

    def _headers_finished(self) -> None:
        kind, options = multipart.parse_options_header(
            self._headers.get(b"content-disposition", b"")
        )
        if kind != b"form-data" or b"name" not in options:
            raise errors.BadRequest(
                "a part of the form has no name: Content-Disposition: form-data; name=… is missing"
            )
        self._name = options[b"name"].decode("utf-8", "replace")
        self._check_as_it_is()
        self._in_file = self._name == FILE
        if self._in_file:
            if self._held is not None:
                raise errors.BadRequest(
                    "there are two files in the form: send each as a job of its own"
                )
            self._held = bytearray()

    def _check_as_it_is(self) -> None:
        """Raise an error if a part of the form has an encoding: RFC 7578 §4.7 has none, and no
        reader would decode it.
        """
        for header in (b"content-transfer-encoding", b"content-encoding"):
            coding = self._headers.get(header, b"binary").strip().lower().decode("latin-1")
            if coding not in ("binary", "8bit", "7bit", "identity"):
                raise errors.UnsupportedMediaType(
                    f"field {self._name[:100]!r}: {header.decode().title()}: {coding[:100]}: send "
                    "it as it is"
                )

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._file_data(data if end - start == len(data) else data[start:end])
            return
        self._value += data[start:end]
        self._field_bytes += end - start
        if self._field_bytes > FIELD_BYTES:
            raise errors.ContentTooLarge(
                f"field {self._name[:100]!r}: the fields beside the file have more than "
                f"{FIELD_BYTES:,} bytes; the file itself goes into the field {FILE!r}"
            )

    def _file_data(self, data: bytes) -> None:
        if self._target is not None:
            self._target.process(data)
        elif self._held is not None:
            self._held += data
            if len(self._held) > HELD_BYTES:
                self._open(self._held)

    def _part_end(self) -> None:
        if not self._in_file:
            if self._name in self.fields:
                raise errors.BadRequest(
                    f"field {self._name[:100]!r} comes more than once: give it once"
                )
            try:
                self.fields[self._name] = self._value.decode()
            except UnicodeDecodeError as error:
                raise errors.BadRequest(f"field {self._name[:100]!r} is not UTF-8") from error

    def _end(self) -> None:
        self._ended = True
