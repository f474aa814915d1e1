"""Encoding of manifests, and checks of their invariants. Used by `jobs`, which checks the manifest
of each new job.
"""

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors

VERSION = 1

_DECODER = msgspec.json.Decoder(filejobs.Manifest)


def encode(manifest: filejobs.Manifest) -> bytes:
    """Check a manifest and return it as JSON. Raises `ManifestDamaged`."""
    return msgspec.json.encode(checked(manifest))


def decode(content: bytes) -> filejobs.Manifest:
    """Decode and check the result of `encode`. Raises `ManifestDamaged`."""
    try:
        return checked(_DECODER.decode(content))
    except msgspec.MsgspecError as error:
        raise _damaged(str(error)) from error


def checked(manifest: filejobs.Manifest) -> filejobs.Manifest:
    """Return the manifest if its parts are consecutive and their counts add up to its totals.
    Raises `ManifestDamaged`.
    """
    if manifest.version != VERSION:
        raise _damaged(f"it is of version {manifest.version}, this is version {VERSION}")
    at, line = manifest.parts[0].start if manifest.parts else manifest.bytes, 1
    for number, part in enumerate(manifest.parts, 1):
        if part.number != number:
            raise _damaged(f"part {part.number} stands where part {number} should")
        if part.start != at or part.end <= at:
            raise _damaged(f"part {number} has bytes {part.start} to {part.end}, after byte {at}")
        if part.first_line != line or part.lines < 1:
            raise _damaged(f"part {number} has {part.lines} records from {part.first_line} on")
        at, line = part.end, line + part.lines
    if at != manifest.bytes:
        raise _damaged(f"its parts end at byte {at} of {manifest.bytes}")
    if line != manifest.lines + 1:
        raise _damaged(f"its parts have {line - 1} of {manifest.lines} records")
    return manifest


def _damaged(how: str) -> errors.ManifestDamaged:
    return errors.ManifestDamaged(f"a manifest is not what was written: {how}")
