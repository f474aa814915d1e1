"""Patterns of schemas: RE2's syntax, and no text that stops the server."""

import itertools
import random
import re
import time

import pytest

from kilnwork.controlplane.apiserver import patterns


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("a", ["a", "bab"], ["", "b"]),
        ("", ["", "x"], []),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("^(a|bc)+$", ["a", "bcabc"], ["", "ab"]),
        ("^a{2}$", ["aa"], ["a", "aaa"]),
        ("^a{2,}$", ["aa", "aaaa"], ["a"]),
        ("^a{1,3}?$", ["a", "aaa"], ["", "aaaa"]),
        ("^a{,3}$", ["a{,3}"], ["aa"]),
        ("^(ab?)*c$", ["c", "abac"], ["abb", "abbc"]),
        (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z]+)*$", ["a-b.c", "x"], ["-a", "a-", "a..b"]),
        (r"^\d+\.\w\s$", ["12.a ", "1._\t"], ["١.a ", "1.ä "]),
        (r"^[^\d\-x-z[:upper:]]$", ["a", "]"], ["1", "-", "y", "A"]),
        (r"^[]a-]$", ["]", "a", "-"], ["b"]),
        (r"^(?i)aB[c-d]$", ["abC", "ABd"], ["abe"]),
        (r"^(?i:a)b$", ["Ab"], ["AB"]),
        (r"^.$", ["a", "ä"], ["\n", "ab"]),
        (r"^(?s).$", ["\n"], [""]),
        (r"\bab\b", ["ab", "x ab."], ["xab", "abä_".replace("ä", "")]),
        (r"a\Bb", ["ab"], ["a b"]),
        (r"^\p{Lu}\pL\PN$", ["Äbc"], ["abc", "Äb1"]),
        (r"\Aa\z", ["a"], ["a\n", "ba"]),
        ("^a$", ["a"], ["a\n"]),
        (r"^(?P<name>\x41\x{42}\.)\/$", ["AB./"], ["AB:/"]),
        ("", [""], []),
        ("^(a*)*$", ["", "aaa"], ["b"]),
    ],
)
def test_patterns_match_as_re2(pattern: str, fits: list[str], fails: list[str]) -> None:
    made = patterns.Pattern(pattern)
    assert [text for text in fits if not made.found_in(text)] == []
    assert [text for text in fails if made.found_in(text)] == []


def test_random_patterns_match_as_python_re() -> None:
    """Made up at random, and tried on every short text."""
    chance = random.Random(7)
    texts = ["".join(t) for n in range(5) for t in itertools.product("ab", repeat=n)]

    def random_pattern(depth: int) -> str:
        if depth == 0:
            return chance.choice(["a", "b", ".", "[ab]", "[^a]", "^", r"\b", r"\Z"])
        inner = [random_pattern(depth - 1) for _ in range(2)]
        forms = ["{0}{1}", "(?:{0}|{1})", "(?:{0})*{1}", "(?:{0})?{1}", "(?:{0}){{1,2}}"]
        return chance.choice(forms).format(*inner)

    for _ in range(300):
        pattern = random_pattern(3)
        ours, theirs = patterns.Pattern(pattern.replace(r"\Z", "$")), re.compile(pattern)
        for text in texts:
            assert ours.found_in(text) == bool(theirs.search(text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        "[", "(", "a)", "*", "a**", "(?=a)", "(?<=a)", r"(a)\1", r"\z\q", "[b-a]", "a{1001}",
        "[[:x:]]", "(?P<", r"\p{Foo}", "\\", "(" * 200 + ")" * 200, "((a{1000}){1000}){1000}",
        "a" * 30_000,
    ],
)  # fmt: skip
def test_invalid_patterns_are_rejected(pattern: str) -> None:
    with pytest.raises(patterns.BadPattern):
        patterns.Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a?){50}a{50}$", "(.*)(.*)(.*)(.*)[^a]b$", "^(a|aa)+$"]
)
def test_exponential_patterns_match_in_linear_time(pattern: str) -> None:
    """With Python's own `re` each of these takes hours."""
    begin_s = time.thread_time()
    assert not patterns.Pattern(pattern).found_in("a" * 20_000 + "!")
    assert time.thread_time() - begin_s < 2  # 0.05 s of work; `thread_time`: others do not count


def test_too_expensive_match_raises_too_hard() -> None:
    made = patterns.Pattern("^(" + "|".join(f"{'.' * n}x" for n in range(1, 130)) + ")*$")
    chance = random.Random(1)
    with pytest.raises(patterns.TooHard):
        made.found_in("".join(chance.choices("xy", k=200_000)))
