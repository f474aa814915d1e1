"""Foreign formats: recognizes, by their first bytes, files that cannot be read by lines, and
suggests how to convert them.

Used by `kiln.split` and by uploads. The magic numbers are those of file(1).
"""

from typing import NamedTuple

GZIP = b"\x1f\x8b"

HEAD_BYTES = 10
"""Number of bytes at the beginning of a file that `foreign` needs."""


class Foreign(NamedTuple):
    """A file format that cannot be read by lines. `what`: description that follows the file name in
    messages; `remedy`: a command that converts the file.
    """

    what: str
    remedy: str


_FOREIGN = (
    (b"BZh", Foreign("is compressed with bzip2", "decompress it first: bunzip2 --keep")),
    (b"\xfd7zXZ\0", Foreign("is compressed with xz", "decompress it first: unxz --keep")),
    (b"\x28\xb5\x2f\xfd", Foreign("is compressed with zstd", "decompress it first: unzstd")),
    (b"PK\x03\x04", Foreign("is a zip archive", "take it apart first: unzip")),
    (b"\xff\xfe", Foreign("is text in UTF-16", "rewrite it first: iconv -f UTF-16 -t UTF-8")),
    (b"\xfe\xff", Foreign("is text in UTF-16", "rewrite it first: iconv -f UTF-16 -t UTF-8")),
)
_GZIP = Foreign("is compressed with gzip", "decompress it first: gunzip --keep")
_BZIP2_BLOCK = b"1AY&SY"

FIRST_BYTES = frozenset(magic[0] for magic, _ in _FOREIGN) | {GZIP[0]}
"""First bytes of all foreign formats: a file that begins with another byte is not `foreign`."""


def foreign(head: bytes, *, gzip: bool = False) -> Foreign | None:
    """Return the foreign format of a file that begins with `head`, or None if the file may consist
    of lines.

    `gzip`: whether the caller can read gzip, which is then not a foreign format.
    """
    if head.startswith(GZIP):
        return None if gzip else _GZIP
    for magic, kind in _FOREIGN:
        if head.startswith(magic):
            # a line may begin with these three letters, but hardly with the block's mark after it
            if magic == b"BZh" and head[4:HEAD_BYTES] != _BZIP2_BLOCK[: max(len(head) - 4, 0)]:
                continue
            return kind
    return None
