"""Glob patterns for paths of files in a snapshot, as in `kit.globs`.

Used by sources and by shards, where an invalid pattern is refused with an error of its own.
"""

from kilnwork.data import errors
from kilnwork.kit import globs


def matches(pattern: str, path: str) -> bool:
    """Return whether a path matches a glob pattern. Raises ManifestRefused for an invalid
    pattern.
    """
    try:
        return globs.matches(pattern, path)
    except ValueError as error:
        raise errors.ManifestRefused(str(error)) from error
