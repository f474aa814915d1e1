"""Parsing of range requests and conditional requests (RFC 9110).

Pure; used by `file_bodies`, `context` and `control`. A request for several ranges gets the whole
representation, which is a valid response (§14.2) and sufficient for NDJSON.
"""

import re
from typing import NamedTuple

from kilnwork.server import errors

_RANGE = re.compile(r"bytes[ \t]*=[ \t]*(\d{0,18})-(\d{0,18})[ \t]*", re.IGNORECASE | re.ASCII)
_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


class Span(NamedTuple):
    """A range of bytes, from `start` to `end` (exclusive)."""

    start: int
    end: int


def parse_range(header: str | None, *, size: int, if_range: str | None, etag: str) -> Span | None:
    """Return the range that a `Range` header requests, or None for the whole representation.

    A header that cannot be parsed is ignored (§14.2), and so is one whose `If-Range` names another
    version (§13.1.5: strong comparison). Raises RangeNotSatisfiable.
    """
    if header is None or (if_range is not None and if_range.strip() != etag):
        return None
    found = _RANGE.fullmatch(header.strip())
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        span = Span(max(size - int(found[2]), 0), size)
    else:
        end = size if found[2] == "" else min(int(found[2]) + 1, size)
        if found[2] and int(found[2]) < int(found[1]):
            return None
        span = Span(int(found[1]), end)
    if span.start >= span.end:
        raise errors.RangeNotSatisfiable(
            f"Range: {header}: there are {size} bytes",
            headers=((b"content-range", f"bytes */{size}".encode()),),
        )
    return span


def matches_any(header: str | None, etag: str) -> bool:
    """Return whether a list of entity tags contains `etag`, or is `*`.

    Used for `If-None-Match`, with weak comparison (§13.1.2).
    """
    if header is None:
        return False
    if header.strip() == "*":
        return True
    return any(tag.removeprefix("W/") == etag for tag in _TAG.findall(header))


def check_match(header: str | None, etag: str) -> None:
    """Raise PreconditionFailed unless `If-Match` (§13.1.1) contains `etag` or is absent."""
    if header is None or header.strip() == "*":
        return
    if etag not in _TAG.findall(header):
        raise errors.PreconditionFailed(
            f"If-Match: {header[:200]}: it is {etag} now; read it again, then decide again"
        )
