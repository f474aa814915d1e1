r"""Regular expressions as defined by RFC 9485 (I-Regexp), matched in linear time.

Used by result rules: the operator `Matches`, and `match()` and `search()` in a JSONPath. Python's
`re` backtracks, so that the author of a pattern such as `(a|a)*b` can block a process for an
unlimited time. Here a pattern is compiled to a position automaton (Glushkov 1961), whose state
after each character is a set of positions: time is bounded by characters times positions, and
counted in a Budget. Not for routes or file formats: there are no capturing groups, anchors or `\d`.
"""

import functools
import unicodedata
from collections.abc import Iterator
from typing import NoReturn

import msgspec

from kilnwork.api import json_limits
from kilnwork.kit import errors

MAX_CHARS = 512
"""Maximum length of a pattern."""

MAX_POSITIONS = 1000
"""Maximum number of characters, classes and groups in a pattern after expansion of its
repetitions: `a{3}` counts as 3."""

MAX_REMEMBERED = 1024
"""Maximum number of automaton transitions that a pattern caches for later texts."""

_SPECIAL = "()*+.?[\\]{|}"
_ESCAPED = {**{char: char for char in "()*+-.?[\\]^{|}"}, "n": "\n", "r": "\r", "t": "\t"}
_REMEDIES = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[A-Za-z0-9_]",
    "W": "[^A-Za-z0-9_]",
    "s": r"[ \t\n\r]",
    "S": r"[^ \t\n\r]",
    "$": "[$]",
    "/": "/",
}
_CATEGORIES = {"L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "Z": "lps", "S": "ckmo"} | {
    "C": "cfno"
}


class PatternError(errors.KilnError):
    """The text is not an I-Regexp; the message gives the position and what to write instead."""


class _Class(msgspec.Struct, frozen=True):
    """The characters that one position of a pattern matches."""

    ranges: tuple[tuple[str, str], ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False

    def takes(self, char: str) -> bool:
        """Return whether `char` is one of the characters."""
        found = any(first <= char <= last for first, last in self.ranges)
        if not found and self.categories:
            category = unicodedata.category(char)
            found = any(category.startswith(name) is inside for name, inside in self.categories)
        return found is not self.negated


class _Node(msgspec.Struct, frozen=True):
    """A node of a parsed pattern: a class, a sequence or an alternative.

    `most` is None for an unbounded repetition.
    """

    chars: _Class | None = None
    parts: tuple["_Node", ...] = ()
    either: bool = False
    least: int = 1
    most: int | None = 1


class _Piece(msgspec.Struct, frozen=True):
    """A part of the automaton: its first and its last positions, as bits."""

    empty: bool
    first: int
    last: int


_EMPTY = _Piece(empty=True, first=0, last=0)


class Pattern:
    """A compiled pattern. It may be shared between threads: its cache only saves time."""

    def __init__(self, text: str) -> None:
        """Compile a pattern; raises PatternError."""
        self.text = text
        self._follow: list[int] = []
        self._classes: dict[_Class, int] = {}
        self._built = 0
        self._piece = self._build(_Parser(text).parse())
        self._masks: dict[str, int] = {}
        self._next: dict[int, int] = {}

    def fullmatch(self, text: str, budget: json_limits.Budget) -> bool:
        """Return whether the whole text matches; raises LimitExceeded."""
        budget.spend(len(text))
        candidates, active = self._piece.first, 0
        for char in text:
            active = candidates & self._mask(char, budget)
            if not active:
                return False
            candidates = self._after(active, budget)
        return bool(active & self._piece.last) if text else self._piece.empty

    def search(self, text: str, budget: json_limits.Budget) -> bool:
        """Return whether a part of the text matches; raises LimitExceeded."""
        budget.spend(len(text))
        if self._piece.empty:
            return True
        candidates = self._piece.first
        for char in text:
            active = candidates & self._mask(char, budget)
            if active & self._piece.last:
                return True
            candidates = self._after(active, budget) | self._piece.first
        return False

    def _mask(self, char: str, budget: json_limits.Budget) -> int:
        """Return the positions that match a character, as bits."""
        found = self._masks.get(char)
        if found is None:
            budget.spend(10 * len(self._classes))
            found = sum(bits for chars, bits in self._classes.items() if chars.takes(char))
            if len(self._masks) >= MAX_REMEMBERED:
                self._masks.clear()
            self._masks[char] = found
        return found

    def _after(self, active: int, budget: json_limits.Budget) -> int:
        """Return the positions that may follow any of the active positions, as bits."""
        found = self._next.get(active)
        if found is None:
            budget.spend(10 + 5 * active.bit_count())
            found = 0
            for position in _positions(active):
                found |= self._follow[position]
            if len(self._next) >= MAX_REMEMBERED:
                self._next.clear()
            self._next[active] = found
        return found

    def _build(self, node: _Node) -> _Piece:
        """Add a node to the automaton, with its repetitions expanded."""
        piece = _EMPTY
        for _ in range(node.least):
            piece = self._joined(piece, self._build_once(node))
        if node.most is None:
            more = self._build_once(node)
            self._link(more.last, more.first)
            return self._joined(piece, msgspec.structs.replace(more, empty=True))
        optional = _EMPTY
        for _ in range(node.most - node.least):
            # a{0,3} becomes (a(a(a)?)?)?: as a?a?a?, each position would be linked to all positions
            # before it
            more = self._joined(self._build_once(node), optional)
            optional = msgspec.structs.replace(more, empty=True)
        return self._joined(piece, optional)

    def _build_once(self, node: _Node) -> _Piece:
        self._built += 1
        if self._built > MAX_POSITIONS:
            raise PatternError(
                f"has more than {MAX_POSITIONS} parts once its repetitions are written out"
            )
        if node.chars is not None:
            bit = 1 << len(self._follow)
            self._follow.append(0)
            self._classes[node.chars] = self._classes.get(node.chars, 0) | bit
            return _Piece(empty=False, first=bit, last=bit)
        if not node.either:
            return functools.reduce(self._joined, map(self._build, node.parts), _EMPTY)
        pieces = [self._build(part) for part in node.parts]
        return _Piece(
            empty=any(piece.empty for piece in pieces),
            first=functools.reduce(int.__or__, (piece.first for piece in pieces)),
            last=functools.reduce(int.__or__, (piece.last for piece in pieces)),
        )

    def _joined(self, left: _Piece, right: _Piece) -> _Piece:
        """Concatenate two parts."""
        self._link(left.last, right.first)
        return _Piece(
            empty=left.empty and right.empty,
            first=left.first | (right.first if left.empty else 0),
            last=right.last | (left.last if right.empty else 0),
        )

    def _link(self, ends: int, starts: int) -> None:
        if starts:
            for position in _positions(ends):
                self._follow[position] |= starts


class _Parser:
    """Recursive-descent parser of the grammar in RFC 9485, section 4."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARS:
            raise PatternError(f"has {len(text)} characters; {MAX_CHARS} are allowed")
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        """Parse the whole text; raises PatternError."""
        node = self._branches()
        if self._at < len(self._text):
            self._fail("has a ) without its (")
        return node

    def _branches(self) -> _Node:
        branches = [self._branch()]
        while self._took("|"):
            branches.append(self._branch())
        return branches[0] if len(branches) == 1 else _Node(parts=tuple(branches), either=True)

    def _branch(self) -> _Node:
        pieces = []
        while self._peek() not in ("", "|", ")"):
            pieces.append(self._quantified(self._atom()))
        return pieces[0] if len(pieces) == 1 else _Node(parts=tuple(pieces))

    def _atom(self) -> _Node:
        char = self._take()
        if char == "(":
            return self._group()
        if char == ".":
            return _Node(chars=_Class((("\n", "\n"), ("\r", "\r")), negated=True))
        if char == "[":
            return _Node(chars=self._class())
        if char == "\\":
            category = self._category()
            if category is not None:
                return _Node(chars=_Class(categories=(category,)))
            char = self._escaped()
        elif char in _SPECIAL:
            self._fail(f"has a {char} with nothing before it; the character itself is \\{char}")
        return _Node(chars=_Class(((char, char),)))

    def _group(self) -> _Node:
        if self._peek() == "?":
            self._fail("has (? where I-Regexp knows only plain groups")
        self._depth += 1
        if self._depth > json_limits.MAX_DEPTH:
            self._fail(f"has groups more than {json_limits.MAX_DEPTH} deep")
        node = self._branches()
        if not self._took(")"):
            self._fail("has a ( without its )")
        self._depth -= 1
        # if the only part of a group is repeated, keep its repetition separate from that of the
        # group
        return _Node(parts=(node,)) if (node.least, node.most) != (1, 1) else node

    def _quantified(self, atom: _Node) -> _Node:
        most: int | None
        for char, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._took(char):
                return self._repeated(atom, least, most)
        if not self._took("{"):
            return atom
        least = most = self._number()
        if self._took(","):
            most = self._number() if self._peek() != "}" else None
        if not self._took("}"):
            self._fail("has a { without its }")
        if most is not None and most < least:
            self._fail(f"asks for at least {least} and at most {most}")
        return self._repeated(atom, least, most)

    def _repeated(self, atom: _Node, least: int, most: int | None) -> _Node:
        if self._peek() in ("*", "+", "?", "{"):
            self._fail("repeats a repetition; I-Regexp knows no lazy or possessive ones")
        return msgspec.structs.replace(atom, least=least, most=most)

    def _number(self) -> int:
        start = self._at
        while "0" <= self._peek() <= "9":
            self._at += 1
        if start == self._at:
            self._fail("needs a number in {}, as in {3}, {3,} or {3,5}; the character is \\{")
        return int(self._text[start : self._at])

    def _class(self) -> _Class:
        """Parse the rest of a class after its `[`."""
        negated = self._took("^")
        ranges: list[tuple[str, str]] = []
        categories: list[tuple[str, bool]] = []
        if self._took("-"):
            ranges.append(("-", "-"))
        while not self._took("]"):
            if self._took("-"):
                if self._peek() != "]":
                    self._fail("has a - that is neither a range nor first or last; write \\-")
                ranges.append(("-", "-"))
                continue
            escaped = self._took("\\")
            category = self._category() if escaped else None
            if category is not None:
                categories.append(category)
                continue
            ranges.append(self._range(escaped=escaped))
        if not ranges and not categories:
            self._fail("has [] with nothing in it")
        return _Class(tuple(ranges), tuple(categories), negated)

    def _range(self, *, escaped: bool) -> tuple[str, str]:
        first = self._class_char(escaped=escaped)
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return first, first
        self._at += 1
        last = self._class_char(escaped=self._took("\\"))
        if last < first:
            self._fail(f"has the range {first}-{last}, whose end is before its start")
        return first, last

    def _class_char(self, *, escaped: bool) -> str:
        if escaped:
            return self._escaped()
        char = self._take() or self._fail("has a [ without its ]")
        if char in "[-":
            self._fail(f"has a {char} inside []; write \\{char}")
        return char

    def _category(self) -> tuple[str, bool] | None:
        """Parse `p{Lu}` or `P{Lu}` after a backslash; return None for anything else."""
        kind = self._peek()
        if kind not in ("p", "P"):
            return None
        braced, closed, _ = self._text[self._at + 1 :].partition("}")
        self._at += len(braced) + 2
        name = braced.removeprefix("{")
        if (
            not (closed and braced.startswith("{"))
            or name[:1] not in _CATEGORIES
            or name[1:] not in ("", *_CATEGORIES[name[0]])
        ):
            self._fail(f"has \\{kind} without a category of Unicode, as in \\{kind}{{Lu}}")
        return name, kind == "p"

    def _escaped(self) -> str:
        char = self._take()
        if char not in _ESCAPED:
            remedy = f"; write {_REMEDIES[char]}" if char in _REMEDIES else ""
            self._fail(f"has \\{char}, which I-Regexp does not know{remedy}")
        return _ESCAPED[char]

    def _peek(self) -> str:
        """Return the next character, or "" at the end."""
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        self._at += len(char)
        return char

    def _took(self, char: str) -> bool:
        found = self._peek() == char
        self._at += found
        return found

    def _fail(self, problem: str) -> NoReturn:
        raise PatternError(f"{problem} (character {self._at})")


def _positions(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


@functools.lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Compile a user's pattern, with a cache. Raises PatternError.

    A `^` at the beginning and a `$` at the end are refused too: I-Regexp has no anchors, and most
    users who write these characters mean anchors.
    """
    if text[:1] == "^" or text[-1:] == "$":
        raise PatternError(
            "begins with ^ or ends with $, which are characters in I-Regexp and anchors elsewhere; "
            r"leave them out, or write \^ and [$] for the characters"
        )
    return Pattern(text)
