r"""Named character classes of patterns, which contain ASCII characters only (as in RE2).

Used by `patterns`.
"""

from collections.abc import Callable

Test = Callable[[str], bool]


def is_digit(letter: str) -> bool:
    r"""Return whether the class `\d` contains a character."""
    return "0" <= letter <= "9"


def is_word(letter: str) -> bool:
    r"""Return whether the class `\w` contains a character."""
    return letter.isascii() and (letter.isalnum() or letter == "_")


def is_space(letter: str) -> bool:
    r"""Return whether the class `\s` contains a character."""
    return letter in "\t\n\f\r "


def inverse(test: Test) -> Test:
    """Return the test that is true for the characters for which another test is false."""
    return lambda letter: not test(letter)


PERL: dict[str, Test] = {"d": is_digit, "w": is_word, "s": is_space}
POSIX: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": is_digit,
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
