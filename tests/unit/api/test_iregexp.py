"""I-Regexp (RFC 9485): its grammar, agreement with Python's `re`, and linear time."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import iregexp, json_limits


def matches(pattern: str, text: str) -> bool:
    return iregexp.Pattern(pattern).fullmatch(text, json_limits.Budget())


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("", "", True),
        ("", "a", False),
        ("a|b", "b", True),
        ("a|", "", True),
        ("Succeeded|Complete(d)?", "Completed", True),
        ("[a-c]{2,3}", "abca", False),
        ("(a{2}){2}", "aaaa", True),
        ("a{0}", "", True),
        ("a{2,}", "aaaaa", True),
        (".", "\n", False),
        (".", "\r", False),
        (".", "ä", True),
        ("[^a]", "\n", True),
        ("[-a]", "-", True),
        ("[a-]", "-", True),
        ("[^-a]", "-", False),
        (r"[\]\-\\]*", r"]-\\"[:3], True),
        ("[a^]", "^", True),
        ("^a$", "^a$", True),
        (r"\^\.\n", "^.\n", True),
        (r"\p{Lu}\p{Ll}+", "Ärger", True),
        (r"\P{L}", "1", True),
        (r"[\p{Nd}_]+", "1_2", True),
        (r"[^\p{Nd}]", "1", False),
        ("\U0001f600{2}", "\U0001f600" * 2, True),
        ("a-b,c", "a-b,c", True),
    ],
)
def test_pattern_matches_as_expected(pattern: str, text: str, *, found: bool) -> None:
    assert matches(pattern, text) is found


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "without its )"),
        ("a)", "without its ("),
        ("[", "without its ]"),
        ("[a", "without its ]"),
        ("[]", "nothing in it"),
        ("[]a]", "nothing in it"),
        ("[[a]", r"write \["),
        ("[a-b-c]", r"write \-"),
        ("[b-a]", "end is before its start"),
        ("a**", "repeats a repetition"),
        ("a+?", "repeats a repetition"),
        ("*a", r"character itself is \*"),
        ("a{2", "without its }"),
        ("a{,2}", "needs a number"),
        ("a{3,2}", "at least 3 and at most 2"),
        ("}", r"character itself is \}"),
        ("(?:a)", "only plain groups"),
        ("(?=a)", "only plain groups"),
        (r"\d+", "write [0-9]"),
        (r"\w", "write [A-Za-z0-9_]"),
        (r"(a)\1", r"has \1"),
        (r"\bx", r"has \b"),
        (r"\p{Xx}", "category"),
        (r"\pLu}", "category"),
        (r"[\PN}]", "category"),
        (r"\pL", "category"),
        ("\\", "which I-Regexp does not know"),
        ("a{1001}", "more than 1000 parts"),
        ("((((((){999}){999}){999}){999}){999})", "more than 1000 parts"),
        ("(" * 65 + "a" + ")" * 65, "groups more than 64 deep"),
        ("a" * 513, "512 are allowed"),
    ],
)
def test_invalid_pattern_is_refused_with_a_remedy(pattern: str, problem: str) -> None:
    with pytest.raises(iregexp.PatternError, match=re.escape(problem)):
        iregexp.Pattern(pattern)


ATOMS = some.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[b-c]", r"\.", "()"])
PATTERNS = some.recursive(
    ATOMS,
    lambda part: some.one_of(
        some.tuples(part, some.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        some.tuples(part, part).map("".join),
        some.tuples(part, part).map("|".join),
        some.tuples(part, part).map(lambda pair: f"({pair[0]}|{pair[1]})"),
    ),
    max_leaves=6,
)


@given(PATTERNS, some.lists(some.text("abc.", max_size=5), min_size=1, max_size=6))
def test_pattern_matches_the_same_texts_as_in_python(pattern: str, texts: list[str]) -> None:
    """One pattern matches several texts: its cache must not affect later texts."""
    known, ours = re.compile(pattern), iregexp.Pattern(pattern)
    for text in texts:
        assert ours.fullmatch(text, json_limits.Budget()) is bool(known.fullmatch(text))
        assert ours.search(text, json_limits.Budget()) is bool(known.search(text))


@given(some.text(r"ab01()[]{}|*+?.,^-\pLdn$", max_size=12))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    problem = ""
    try:
        pattern = iregexp.Pattern(text)
    except iregexp.PatternError as error:
        problem = str(error)
    if problem:
        assert problem.startswith(("has ", "repeats ", "needs ", "asks "))
    else:
        # what is found whole is found
        assert pattern.search("ab01", json_limits.Budget()) >= matches(text, "ab01")


@pytest.mark.parametrize("pattern", ["(a|a)*b", "(a*)*b", "a*a*a*a*a*b", "(a|aa)+c", "(.*a){9}x"])
def test_catastrophic_patterns_terminate(pattern: str) -> None:
    assert matches(pattern, "a" * 20_000) is False


def test_work_is_counted_and_limited() -> None:
    """Each of these characters leads the automaton to a new state."""
    pattern = iregexp.Pattern("(a|b)*a(a|b){300}")
    text = "".join(random.Random(1).choices("ab", k=10_000))
    with pytest.raises(json_limits.LimitExceeded):
        pattern.fullmatch(text, json_limits.Budget())


def test_cache_of_a_pattern_is_bounded() -> None:
    pattern = iregexp.Pattern(".*")
    for start in range(0, 60_000, 100):
        text = "".join(map(chr, range(start, start + 100)))
        pattern.search(text, json_limits.Budget())
        pattern.fullmatch(text, json_limits.Budget())
    assert len(pattern._masks) <= iregexp.MAX_REMEMBERED
    assert len(pattern._next) <= iregexp.MAX_REMEMBERED
