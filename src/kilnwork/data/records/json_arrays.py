"""Takes one JSON array apart, to one element a line, as it comes in. Used by `intake`.

Only brackets, commas and strings are looked at: an element that is not JSON becomes a record that
is not, as a line would. Bytes of elements stay as they are, but for line ends between tokens,
which become spaces. Every byte is looked at about once, however deep or long an element is.

That is pure Python. Where elements are alike, a faster way is tried before: what comes before a
comma, put in brackets, is whole elements if and only if it is a JSON array, and msgspec tells that
at ten times the speed. The comma tried is the last one that looks like the first one.
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
"""In the array itself: the next comma or bracket; objects and arrays with none in them are passed
over at once."""
_BRACKET = re.compile(_FLAT + rb"([\[\]{}])")
"""In an element: the next bracket."""
_BETWEEN = re.compile(rb'[\s\S][ \t\r\n]*,[ \t\r\n]*(?:\{[ \t\r\n]*"[^"\\\n]{0,64}"|[\[\{"]|)')
"""From the last byte of an element to what begins the next one: of an object its first name."""
_ALIKE_BYTES = 1 << 17
"""Collected before the faster way is tried."""
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_MAX_DEPTH = 1000
"""Brackets of an element that are open at once: no parser of JSON takes many more (msgspec, as
Python's own, about 1,000), and to count a million of them takes seconds."""
_COMMA, _CLOSING = ord(","), b"]}"


class Elements:
    """One array. `feed` it in order, then `finish`. `most_bytes`: of an element."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held = byte_buffer.Held()
        self._rest = b""
        """From the beginning of the element that is not complete."""
        self._at = 0
        """As far it was looked at; `_depth`: brackets that are open there."""
        self._depth = 0
        self._needed = 0
        self._opened = self._closed = False
        self._between: bytes | None = None
        """What was between the first two elements."""
        self._count = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Elements that are complete, each with LF. Raises `InputRefused` with its number."""
        self._held.add(data)
        if len(self._rest) + self._held.bytes < min(self._needed, self._most_bytes):
            return
        if self._held.bytes:
            data = self._held.take()
            self._rest = self._rest + data if self._rest else data
        if not self._begun():
            return
        if len(self._rest) >= _ALIKE_BYTES and (found := self._alike()):
            yield found
            return
        if found := self._complete():
            yield found
        if len(self._rest) > self._most_bytes:
            raise self._refused(
                f"is longer than {self._most_bytes:,} bytes: close the string or bracket that may "
                "be open in it, or raise input.maxLineBytes"
            )
        # what could not be passed over, a long string say, is looked at again when it has doubled
        self._needed = 2 * len(self._rest) - self._at

    def finish(self) -> bytes:
        """That was all: the last elements. Raises as `feed`."""
        self._needed = 0
        found = b"".join(self.feed(b""))
        if self._opened:
            found += self._complete()
        if self._opened and not self._closed:
            raise self._refused("does not end: the file ends before its ]")
        return found

    def _begun(self) -> bool:
        """True when what comes next is in the array."""
        if not self._opened:
            self._rest = self._rest.lstrip(_SPACE)
            if self._rest and not self._rest.startswith(b"["):
                raise self._refused("cannot be read: the file does not begin with [")
            self._opened, self._rest = bool(self._rest), self._rest[1:]
        return self._opened

    def _alike(self) -> bytes:
        """All elements up to the last comma that is like the first; none if that is within one."""
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

    def _complete(self) -> bytes:
        """All elements that a comma or the last bracket ends."""
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
                    self._between = _gap(content, at)
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
        """The array ends after `last`, which is its only element, or not empty."""
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
    """No string of JSON holds a line end, so that all of them are between tokens."""
    return element.replace(b"\n", b" ")


def _gap(content: bytes, comma_end: int) -> bytes | None:
    """What is between the elements around a comma; None: the second one is still to come."""
    last = len(content[: comma_end - 1].rstrip(_SPACE)) - 1
    found = _BETWEEN.match(content, max(last, 0))
    return found[0] if found and found.end() < len(content) else None
