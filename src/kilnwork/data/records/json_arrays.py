"""JSON arrays: converts an array to lines with one element each, while the array arrives. Used by
`intake`.

Only brackets, commas and strings are examined: an element that is not JSON becomes a record that is
not JSON, as a line would. The bytes of elements stay unchanged, except for line ends between
tokens, which become spaces. Every byte is examined about once, however deep or long an element is.

Examining bytes in Python is slow, so a faster way is tried first if elements are alike: the text
before the last comma with the same surroundings as the first comma is put into brackets. If that is
a JSON array, the text consists of whole elements. msgspec checks this ten times as fast.
"""

import re
from collections.abc import Iterator

import msgspec

from kilnwork.data import errors
from kilnwork.data.records import byte_buffer

_SPACE = b" \t\r\n"
_STRING = rb'"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"'
_FLAT = rb'[^"\[\]{}]*+(?:%b[^"\[\]{}]*+)*+' % _STRING
_MARK = re.compile(
    rb'[^"\[\]{},]*+(?:(?:%b|\{%b\}|\[%b\])[^"\[\]{},]*+)*+([\[\]{},])' % (_STRING, _FLAT, _FLAT)
)
"""Pattern for the array itself: matches up to the next comma or bracket, and skips objects and
arrays without nested ones at once."""
_BRACKET = re.compile(_FLAT + rb"([\[\]{}])")
"""Pattern for the inside of an element: matches up to the next bracket."""
_BETWEEN = re.compile(rb'[\s\S][ \t\r\n]*,[ \t\r\n]*(?:\{[ \t\r\n]*"[^"\\\n]{0,64}"|[\[\{"]|)')
"""Pattern for the text from the last byte of an element to the beginning of the next one; if that
is an object, including its first name."""
_ALIKE_BYTES = 1 << 17
"""Number of bytes collected before the faster way is tried."""
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_MAX_DEPTH = 1000
"""Maximum nesting depth of an element: no JSON parser accepts many more levels (msgspec and
Python's own about 1,000), and counting a million of them takes seconds."""
_COMMA, _CLOSING = ord(","), b"]}"


class Elements:
    """Splitter of one array into its elements. Pass the array's bytes to `feed` in order, then call
    `finish`.

    `most_bytes`: maximum size of an element.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held = byte_buffer.ByteBuffer()
        self._rest = b""
        """The incomplete element."""
        self._at = 0
        """Position in `_rest` up to which it was searched; `_depth`: number of open brackets
        there."""
        self._depth = 0
        self._needed = 0
        self._opened = self._closed = False
        self._between: bytes | None = None
        """The text between the first two elements."""
        self._count = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the complete elements, each with LF. Raises `InputRefused` with the element's
        number."""
        self._held.add(data)
        if len(self._rest) + self._held.bytes < min(self._needed, self._most_bytes):
            return
        if self._held.bytes:
            data = self._held.take()
            self._rest = self._rest + data if self._rest else data
        if not self._skip_opening_bracket():
            return
        if len(self._rest) >= _ALIKE_BYTES and (found := self._split_alike()):
            yield found
            return
        if found := self._split_complete():
            yield found
        if len(self._rest) > self._most_bytes:
            raise self._refused(
                f"is longer than {self._most_bytes:,} bytes: close the string or bracket that may "
                "be open in it, or raise input.maxLineBytes"
            )
        # an incomplete token, such as a long string, is searched again only when its length has
        # doubled
        self._needed = 2 * len(self._rest) - self._at

    def finish(self) -> bytes:
        """End the array; return its last elements. Raises as `feed`."""
        self._needed = 0
        found = b"".join(self.feed(b""))
        if self._opened:
            found += self._split_complete()
        if self._opened and not self._closed:
            raise self._refused("does not end: the file ends before its ]")
        return found

    def _skip_opening_bracket(self) -> bool:
        """Skip the bracket that opens the array. Return whether the following bytes are inside the
        array.
        """
        if not self._opened:
            self._rest = self._rest.lstrip(_SPACE)
            if self._rest and not self._rest.startswith(b"["):
                raise self._refused("cannot be read: the file does not begin with [")
            self._opened, self._rest = bool(self._rest), self._rest[1:]
        return self._opened

    def _split_alike(self) -> bytes:
        """Return all elements up to the last comma that looks like the first; b"" if that comma is
        inside an element."""
        if self._between is None or self._depth or self._closed:
            return b""
        end = self._rest.rfind(self._between) + 1
        if not end:
            return b""
        try:
            elements = _ELEMENTS.decode(b"[%b]" % self._rest[:end])
        except (msgspec.DecodeError, RecursionError):
            return b""
        if not elements:
            return b""
        self._rest, self._at = self._rest[self._rest.index(b",", end) + 1 :], 0
        self._count += len(elements)
        found = b"\n".join((*elements, b""))
        if found.count(b"\n") > len(elements):
            found = b"\n".join((*(_on_one_line(bytes(each)) for each in elements), b""))
        return found

    def _split_complete(self) -> bytes:
        """Return all elements that end with a comma or the closing bracket."""
        content, at, depth, start = self._rest, self._at, self._depth, 0
        found: list[bytes] = []
        while not self._closed:
            match = (_BRACKET if depth else _MARK).match(content, at)
            if match is None:
                break
            at = match.end()
            mark = content[at - 1]
            if mark == _COMMA:
                if self._between is None:
                    self._between = _text_between(content, at)
                found.append(self._element(content[start : at - 1], len(found)))
                start = at
            elif mark not in _CLOSING:
                depth += 1
                if depth > _MAX_DEPTH:
                    raise self._refused(
                        f"is nested more than {_MAX_DEPTH:,} deep", before=len(found)
                    )
            elif depth:
                depth -= 1
            else:
                self._close(mark, content[start : at - 1], found)
                start = at
        self._rest, self._at, self._depth = content[start:], at - start, depth
        if self._closed and self._rest.strip(_SPACE):
            raise self._refused("follows the ] of the array", before=len(found))
        self._count += len(found)
        return b"\n".join((*found, b""))

    def _close(self, mark: int, last: bytes, found: list[bytes]) -> None:
        """Record the closing bracket of the array. `last` is the text before it, which is empty
        only in an empty array.
        """
        if mark != ord("]"):
            raise self._refused("ends with } instead of ]", before=len(found))
        self._closed = True
        if self._count or found or last.strip(_SPACE):
            found.append(self._element(last, len(found)))

    def _element(self, content: bytes, before: int) -> bytes:
        found = content.strip(_SPACE)
        if not found:
            raise self._refused("is empty: two commas follow each other", before=before)
        return _on_one_line(found)

    def _refused(self, how: str, *, before: int = 0) -> errors.InputRefused:
        number = self._count + before + 1
        return errors.InputRefused(
            f"element {number} of the JSON array {how}. Files with one value on each line are of "
            "format jsonl",
            line=number,
        )


def _on_one_line(element: bytes) -> bytes:
    """Replace line ends in an element by spaces. Strings in JSON contain no line ends, so that all
    are between tokens.
    """
    return element.replace(b"\n", b" ")


def _text_between(content: bytes, comma_end: int) -> bytes | None:
    """Return the text between the elements around a comma, or None if the second one has not
    arrived."""
    last = len(content[: comma_end - 1].rstrip(_SPACE)) - 1
    found = _BETWEEN.match(content, max(last, 0))
    return found[0] if found and found.end() < len(content) else None
