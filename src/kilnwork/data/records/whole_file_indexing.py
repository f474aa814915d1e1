"""Small files: indexes a small, complete file of lines at once.

Used by uploads, of which thousands may arrive per second. The result is the same as that of an
`Intake`, which is needed for all other files: archives, arrays, tables, byte order marks, long
lines, more than one part.
"""

import hashlib
import zlib

from kilnwork.api import filejobs
from kilnwork.data.records import lines, unsupported_formats

_FORMATS = (filejobs.Format.JSONL, filejobs.Format.TEXT)
_ODD = unsupported_formats.FIRST_BYTES | {lines.BOM[0]}


def likely(spec: filejobs.FileJobSpec) -> bool:
    """Return whether the input of a job with this spec may be a file of plain lines."""
    return spec.input.format in _FORMATS and not spec.input.gzip


def manifest(data: bytes, spec: filejobs.FileJobSpec) -> filejobs.Manifest | None:
    """Return the manifest of `data`, which is stored unchanged, or None if an `Intake` is
    needed.
    """
    size = len(data)
    if not data or data[0] in _ODD or not likely(spec) or size > spec.input.max_line_bytes:
        return None
    count = data.count(lines.END) + (not data.endswith(lines.END))
    if count > spec.items_per_part or size > (spec.bytes_per_part or size):
        return None
    return filejobs.Manifest(
        format=spec.input.format,
        bytes=size,
        lines=count,
        sha256=hashlib.sha256(data).hexdigest(),
        parts=(filejobs.Part(1, 0, size, 1, count, zlib.crc32(data)),),
    )
