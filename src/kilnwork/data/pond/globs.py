"""Patterns for paths of files of a snapshot, as `kit.globs` has them.

Used by sources and by shards, for which a pattern that is none is a refusal of its own.
"""

from kilnwork.data import errors
from kilnwork.kit import globs


def matches(pattern: str, path: str) -> bool:
    """Whether a path fits. Raises ManifestRefused for a pattern that is none."""
    try:
        return globs.matches(pattern, path)
    except ValueError as error:
        raise errors.ManifestRefused(str(error)) from error
