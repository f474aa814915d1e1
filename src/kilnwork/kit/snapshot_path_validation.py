"""Validation of the paths of files in a snapshot, which must be below its directory on any machine.

Used by the validation of SyncSets, by sources and by manifests, which come from other machines.
Does no I/O.
"""

import re
from collections.abc import Iterator

MAX_PATH_BYTES = 1024
"""Maximum bytes of a path, which is the limit of object stores; together with the directory of a
run it is still within that of Linux.
"""

MAX_NAME_BYTES = 255
"""Maximum bytes of one component of a path: NAME_MAX of Linux."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def problem(path: str) -> str:
    """Return the error in the path of a file in a snapshot, or "" if it is valid."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is no UTF-8 text: rename it"
    if len(encoded) > MAX_PATH_BYTES:
        return f"has {len(encoded)} bytes, above {MAX_PATH_BYTES}: shorten it"
    if _CONTROL.search(path):
        return "has a control character: rename it"
    if path.startswith("/"):
        return "is absolute: name it from the directory of the snapshot"
    for name in path.split("/"):
        if name in ("", ".", ".."):
            return (
                f"has the component {name!r}: name it from the directory of the snapshot, without"
            )
        if len(name.encode()) > MAX_NAME_BYTES:
            return f"has a component above {MAX_NAME_BYTES} bytes: shorten it"
    return ""


def parents(path: str) -> Iterator[str]:
    """Yield the parent directories of a path, the outermost first."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)
