"""Glob patterns for file paths: `*`, `?`, `[…]` within one component, `**` across components.

Used by the validation of SyncSets, by sources and by shards. Like `glob.translate` of Python 3.13
with `recursive=True`, except that files whose names begin with a dot are not special. Does no I/O.
"""

import functools
import re

MAX_LENGTH = 1024


def matches(pattern: str, path: str) -> bool:
    """Return whether a path matches the pattern. Raises ValueError for an invalid pattern."""
    return _compiled(pattern).fullmatch(path) is not None


def problem(pattern: str) -> str:
    """Return the error in a glob pattern, or "" if it is valid."""
    try:
        _compiled(pattern)
    except ValueError as error:
        return str(error)
    return ""


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    if not pattern or len(pattern) > MAX_LENGTH:
        raise ValueError(f"pattern {pattern[:80]!r}: it must have 1 to {MAX_LENGTH} characters")
    parts = pattern.split("/")
    last = len(parts) - 1
    out = []
    for index, part in enumerate(parts):
        if part == "**":
            out.append(".+" if index == last else "(?:[^/]+/)*")
        elif part in ("", ".", ".."):
            raise ValueError(f"pattern {pattern!r} has the component {part!r}: leave it out")
        else:
            out.append(_component(part, pattern) + ("" if index == last else "/"))
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} has a range that runs backwards") from error


def _component(part: str, pattern: str) -> str:
    out, at = [], 0
    while at < len(part):
        one = part[at]
        at += 1
        if one == "*":
            out.append("[^/]*")
        elif one == "?":
            out.append("[^/]")
        elif one == "[":
            end = part.find("]", at + 1 + (part[at : at + 1] == "!"))
            if end < 0:
                raise ValueError(
                    f"pattern {pattern!r}: a bracket is not closed; write [[] for the character"
                )
            out.append(_set(part[at:end]))
            at = end + 1
        else:
            out.append(re.escape(one))
    return "".join(out)


def _set(inner: str) -> str:
    negated, inner = inner.startswith("!"), inner.removeprefix("!")
    escaped = inner.replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
    escaped = escaped.replace("^", r"\^").replace("&&", r"&\&").replace("||", r"|\|")
    escaped = escaped.replace("~~", r"~\~").replace("--", r"-\-")
    return f"(?!/)[{'^' if negated else ''}{escaped}]"
