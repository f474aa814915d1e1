"""Lines: the definition of a line. Used by all code that counts, cuts or reads lines.

A line ends with LF; a CR before it is not part of the line. A last line without LF counts. A lone
CR, form feed, NUL, NEL or U+2028 is an ordinary character, and bytes need not be UTF-8. A byte
order mark at the start of a file is not part of its first line.
"""

import codecs
from collections.abc import Iterable, Iterator

END = b"\n"
BOM = codecs.BOM_UTF8

_SHORTEST_SEARCH_BYTES = 1024


def split_block(block: bytes) -> list[bytes]:
    """Return the lines in a block of whole lines, without line ends; an empty list for no bytes."""
    if not block:
        return []
    found = block.removesuffix(END).split(END)
    if b"\r" in block:
        return [line.removesuffix(b"\r") for line in found]
    return found


def whole_blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of `pieces` in blocks of whole lines; only the last block may lack its LF."""
    begun: list[bytes] = []
    for piece in pieces:
        cut = piece.rfind(END) + 1
        if not cut:
            begun.append(piece)
        elif begun:
            yield b"".join((*begun, piece[:cut]))
            begun = [piece[cut:]]
        elif cut == len(piece):
            yield piece
        else:
            yield piece[:cut]
            begun = [piece[cut:]]
    if rest := b"".join(begun):
        yield rest


def is_blank(line: bytes) -> bool:
    """Return whether a line has only spaces, tabs and CRs, which JSON calls whitespace."""
    return not line or (line.isspace() and not line.strip(b" \t\r"))


def find_line_after(block: bytes | bytearray, count: int, start: int, *, guess: int) -> int:
    """Return the position after the next `count` lines from `start`; `block` must have as many line
    ends.

    No more of the block is searched than necessary, at the speed of counting. `guess`: approximate
    size of `count` lines in bytes.
    """
    low, step = start, max(guess, _SHORTEST_SEARCH_BYTES)
    high = low + step
    while (found := block.count(END, low, high)) < count:
        if high >= len(block):
            raise ValueError(f"fewer than {count} line ends after byte {start}")
        count -= found
        low, high = high, high + step
    high = min(high, len(block))
    while high - low > _SHORTEST_SEARCH_BYTES:
        middle = (low + high) // 2
        found = block.count(END, low, middle)
        if found >= count:
            high = middle
        else:
            count -= found
            low = middle
    at = low - 1
    for _ in range(count):
        at = block.find(END, at + 1, high)
    return at + 1


def find_longer_line(block: bytes | bytearray, most: int, start: int = 0) -> int | None:
    """Return the start of the first line of more than `most` bytes (without LF), or None if there
    is none.

    A line begins at `start`. The last line may be incomplete.
    """
    while len(block) - start > most:
        at = block.rfind(END, start, start + most + 1)
        if at < 0:
            return start
        start = at + 1
    return None
