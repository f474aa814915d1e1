r"""Regular expressions with the syntax of RE2, matched in time linear in the text.

Used by `schema_validation` and `rules_definitions`. Users who may define a kind, or create an
object of one, must not be able to stop the server: Python's `re` takes 2^n steps for `(a+)+$`. So a
pattern becomes an automaton whose steps are cached (https://swtch.com/~rsc/regexp/regexp2.html).
Syntax: https://github.com/google/re2/wiki/Syntax, without scripts, `\Q` and the flags `m` and `U`.
"""

import functools
import unicodedata
from typing import NamedTuple

from kilnwork.controlplane.apiserver import pattern_classes
from kilnwork.controlplane.apiserver.pattern_classes import Test

MAX_STEPS = 2_000_000
"""Limit of computed steps while one text is matched: a second or two."""

MAX_PROGRAM = 10_000
"""Instructions of one pattern, with counted repetitions expanded."""

_MAX_TEXT = 20_000
_MAX_REPEAT = 1000
_MAX_DEPTH = 100
_MAX_KNOWN = 20_000
"""Cached steps of one pattern."""

_START, _WORD, _OTHER = 0, 1, 2
"""Class of the character before a position in the text."""


class BadPattern(ValueError):
    """The pattern is invalid or not supported; the message says why."""


class TooHard(ValueError):
    """Matching this text would take too long."""


class _Consume(NamedTuple):
    """Instruction: consume one character for which `test` is true."""

    test: Test


class _Fork(NamedTuple):
    """Instruction: continue at each of several relative addresses."""

    to: tuple[int, ...]


class _Assert(NamedTuple):
    """Instruction: continue if an assertion (`^`, `$`, `b` or `B`) holds at the position."""

    what: str


class _Match(NamedTuple):
    """Instruction: the pattern has matched."""


_Op = _Consume | _Fork | _Assert | _Match
_State = tuple[frozenset[int], int]
"""Instructions that wait for the next character, and the class of the character before it."""


class Pattern:
    """A compiled pattern with its cache of steps. Raises BadPattern."""

    def __init__(self, text: str) -> None:
        self._program: list[_Op] = [*_Parser(text).program(), _Match()]
        self._known: dict[tuple[_State, str], _State | None] = {}

    def found_in(self, text: str) -> bool:
        """Return whether any part of the text matches. Raises TooHard."""
        state: _State = (frozenset(), _START)
        steps = 0
        # The empty string stands for the end of the text, where assertions are decided too.
        for letter in (*text, ""):
            key = (state, letter)
            if key not in self._known:
                steps += len(self._program)
                if steps > MAX_STEPS:
                    raise TooHard
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[key] = self._step(state, letter)
            after = self._known[key]
            if after is None:
                return True
            state = after
        return False

    def _step(self, state: _State, letter: str) -> _State | None:
        """Return the state after a letter ("" at the end of the text), or None after a match."""
        waiting, before = state
        after: set[int] = set()
        # A match may begin at any position.
        for at in self._reached(waiting | {0}, before, letter):
            op = self._program[at]
            if isinstance(op, _Match):
                return None
            if letter and isinstance(op, _Consume) and op.test(letter):
                after.add(at + 1)
        return frozenset(after), _WORD if letter and pattern_classes.is_word(letter) else _OTHER

    def _reached(self, begin: frozenset[int], before: int, letter: str) -> set[int]:
        """Return all instructions that can be reached without consuming a letter."""
        seen, todo = set(begin), list(begin)
        while todo:
            at = todo.pop()
            op = self._program[at]
            ways: tuple[int, ...] = ()
            if isinstance(op, _Fork):
                ways = tuple(at + by for by in op.to)
            elif isinstance(op, _Assert) and _holds(op.what, before, letter):
                ways = (at + 1,)
            for way in ways:
                if way not in seen:
                    seen.add(way)
                    todo.append(way)
        return seen


@functools.lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    return Pattern(text)


def _holds(what: str, before: int, letter: str) -> bool:
    if what == "^":
        return before == _START
    if what == "$":
        return not letter
    edge = (before == _WORD) != (bool(letter) and pattern_classes.is_word(letter))
    return edge == (what == "b")


_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ASSERTIONS = {"A": "^", "z": "$", "b": "b", "B": "B"}


class _Parser:
    """Parser of a pattern into instructions, whose jumps are relative so that parts can be
    repeated.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_TEXT:
            raise BadPattern("expression too large")
        self._text = text
        self._at = 0
        self._depth = 0
        self._folds = False
        self._dot_is_all = False

    def program(self) -> list[_Op]:
        found = self._alternatives()
        if self._at < len(self._text):
            raise BadPattern("unexpected )")
        return found

    def _next(self) -> str:
        """Return the next character. Raises BadPattern at the end of the text."""
        if self._at >= len(self._text):
            raise BadPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _accept(self, what: str) -> bool:
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True

    def _alternatives(self) -> list[_Op]:
        found = self._sequence()
        while self._accept("|"):
            other = self._sequence()
            fork, over = _Fork((1, len(found) + 2)), _Fork((len(other) + 1,))
            found = _bounded([fork, *found, over, *other])
        return found

    def _sequence(self) -> list[_Op]:
        found: list[_Op] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            found += self._repeated(self._atom())
        return _bounded(found)

    def _repeated(self, one: list[_Op]) -> list[_Op]:
        begin = self._at
        least, most = self._count()
        if self._at == begin:
            return one
        self._accept("?")  # lazy or greedy makes no difference to whether there is a match
        again = self._at
        self._count()
        if self._at != again:
            raise BadPattern("invalid nested repetition operator")
        if len(one) * max(least, most or 0, 1) > MAX_PROGRAM:
            raise BadPattern("expression too large")
        found = _bounded(one * least)
        if most is None:
            return [*found, _Fork((1, len(one) + 2)), *one, _Fork((-len(one) - 1,))]
        for _ in range(most - least):
            found = [*found, _Fork((1, len(one) + 1)), *one]
        return found

    def _count(self) -> tuple[int, int | None]:
        """Parse a repetition and return its minimum and maximum count, None for unlimited."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        head, closed, _ = self._text[self._at :].partition("}")
        least, comma, most = head[1:].partition(",")
        if not closed or not head.startswith("{") or not _is_number(least):
            return 1, 1  # a literal brace
        if most and not _is_number(most):
            return 1, 1
        self._at += len(head) + 1
        low, high = int(least), int(most) if most else None if comma else int(least)
        if low > _MAX_REPEAT or (high is not None and not low <= high <= _MAX_REPEAT):
            raise BadPattern(f"invalid repeat count: {head}}}")
        return low, high

    def _atom(self) -> list[_Op]:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter in "^$":
            return [_Assert(letter)]
        if letter == ".":
            return [_Consume((lambda _: True) if self._dot_is_all else (lambda c: c != "\n"))]
        if letter == "[":
            return [_Consume(self._set())]
        if letter in "*+?":
            raise BadPattern(f"missing argument to repetition operator: {letter}")
        if letter != "\\":
            return [_Consume(self._literal(letter))]
        if (what := _ASSERTIONS.get(self._text[self._at : self._at + 1])) is not None:
            self._at += 1
            return [_Assert(what)]
        found = self._escaped()
        return [_Consume(self._literal(found) if isinstance(found, str) else found)]

    def _group(self) -> list[_Op]:
        before = self._folds, self._dot_is_all
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise BadPattern("expression nests too deeply")
        if self._accept("?") and not self._named() and not self._flags():
            self._depth -= 1
            return []
        found = self._alternatives()
        if not self._accept(")"):
            raise BadPattern("missing closing )")
        self._depth -= 1
        # Flags end with their group.
        self._folds, self._dot_is_all = before
        return found

    def _named(self) -> bool:
        if not (self._accept("P<") or self._accept("<")):
            return False
        name, closed, _ = self._text[self._at :].partition(">")
        if not closed or not name or not all(map(pattern_classes.is_word, name)):
            raise BadPattern("invalid named capture")
        self._at += len(name) + 1
        return True

    def _flags(self) -> bool:
        """Parse the flags of a group.

        Return True if they apply to this group, False if they apply to all that follows.
        """
        on = True
        while (letter := self._next()) not in ":)":
            if letter == "-" and on:
                on = False
            elif letter == "i":
                self._folds = on
            elif letter == "s":
                self._dot_is_all = on
            else:
                raise BadPattern(f"invalid or unsupported Perl syntax: (?{letter}")
        return letter == ":"

    def _literal(self, wanted: str) -> Test:
        if not self._folds:
            return lambda letter: letter == wanted
        folded = wanted.casefold()
        return lambda letter: letter.casefold() == folded

    def _set(self) -> Test:
        negated = self._accept("^")
        tests: list[Test] = []
        first = True
        # A bracket right after the opening one is a literal.
        while first or not self._accept("]"):
            first = False
            if self._accept("[:"):
                tests.append(self._posix())
                continue
            low = self._member()
            if not isinstance(low, str):
                tests.append(low)
                continue
            high: str | Test = low
            if self._text[self._at : self._at + 1] == "-" and not self._text.startswith(
                "-]", self._at
            ):
                self._at += 1
                high = self._member()
            if not isinstance(high, str) or high < low:
                raise BadPattern("invalid character class range")
            tests.append(self._range(low, high))
        return functools.lru_cache(512)(lambda c: any(test(c) for test in tests) != negated)

    def _posix(self) -> Test:
        name, closed, _ = self._text[self._at :].partition(":]")
        test = pattern_classes.POSIX.get(name.removeprefix("^"))
        if not closed or test is None:
            raise BadPattern(f"invalid character class range: [:{name}:]")
        self._at += len(name) + 2
        return pattern_classes.inverse(test) if name.startswith("^") else test

    def _member(self) -> str | Test:
        letter = self._next()
        return self._escaped() if letter == "\\" else letter

    def _range(self, low: str, high: str) -> Test:
        if not self._folds:
            return lambda letter: low <= letter <= high
        return lambda c: any(low <= one <= high for one in (c, c.lower(), c.upper()))

    def _escaped(self) -> str | Test:
        """Parse the text after a backslash and return a character or the test of a class."""
        letter = self._next()
        if (test := pattern_classes.PERL.get(letter.lower())) is not None:
            return test if letter.islower() else pattern_classes.inverse(test)
        if letter in "pP":
            return self._category(negated=letter == "P")
        if letter in _LETTERS:
            return _LETTERS[letter]
        if letter == "x":
            return self._hexadecimal()
        if not letter.isascii() or letter.isalnum():
            raise BadPattern(f"invalid escape sequence: \\{letter}")
        return letter

    def _category(self, *, negated: bool) -> Test:
        name = self._braced() if self._accept("{") else self._next()
        wanted = name.removeprefix("^")
        if len(wanted) > 2 or wanted[:1] not in tuple("CLMNPSZ"):
            raise BadPattern(f"invalid character class range: \\p{{{name}}}")
        same = (wanted != name) == negated
        return lambda letter: unicodedata.category(letter).startswith(wanted) == same

    def _hexadecimal(self) -> str:
        digits = self._braced() if self._accept("{") else self._next() + self._next()
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError) as error:
            raise BadPattern(f"invalid escape sequence: \\x{digits}") from error

    def _braced(self) -> str:
        inside, closed, _ = self._text[self._at :].partition("}")
        if not closed:
            raise BadPattern("missing closing }")
        self._at += len(inside) + 1
        return inside


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _bounded(program: list[_Op]) -> list[_Op]:
    if len(program) > MAX_PROGRAM:
        raise BadPattern("expression too large")
    return program
