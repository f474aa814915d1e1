"""What a line is. Used by everything that counts, cuts or reads lines.

A line ends with LF. A CR at its end does not belong to it. A last line without LF counts. A lone
CR, form feed, NUL, NEL or U+2028 is a character as any other, and bytes need not be UTF-8. A byte
order mark at the start of a file is no part of its first line.
"""

import codecs
from collections.abc import Iterable, Iterator

END = b"\n"
BOM = codecs.BOM_UTF8

_SHORTEST_SEARCH_BYTES = 1024


def of(block: bytes) -> list[bytes]:
    """The lines of a block of whole lines, without their ends; of no bytes: none."""
    if not block:
        return []
    found = block.removesuffix(END).split(END)
    if b"\r" in block:
        return [line.removesuffix(b"\r") for line in found]
    return found


def whole(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks of whole lines; only the last one may lack its LF."""
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
    """True for a line of nothing but spaces, tabs and CRs: what JSON calls whitespace."""
    return not line or (line.isspace() and not line.strip(b" \t\r"))


def after(block: bytes | bytearray, count: int, start: int, *, guess: int) -> int:
    """Where the line after the next `count` ones begins; there must be as many line ends.

    Looks no further than it needs to, at the speed of counting: `guess` is about how many bytes
    `count` lines are.
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


def beyond(block: bytes | bytearray, most: int, start: int = 0) -> int | None:
    """Where the first line of more than `most` bytes, without its LF, begins; None: there is none.

    A line begins at `start`. The last one is looked at as far as it goes.
    """
    while len(block) - start > most:
        at = block.rfind(END, start, start + most + 1)
        if at < 0:
            return start
        start = at + 1
    return None
