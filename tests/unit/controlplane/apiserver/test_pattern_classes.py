"""Named classes of characters, as RE2 has them: ASCII only."""

import string

import pytest

from kilnwork.controlplane.apiserver import pattern_classes

ASCII = [chr(code) for code in range(128)]
PUNCTUATION = frozenset(string.punctuation)


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("alnum", set(string.ascii_letters + string.digits)),
        ("alpha", set(string.ascii_letters)),
        ("ascii", set(ASCII)),
        ("blank", set("\t ")),
        ("cntrl", {chr(c) for c in (*range(32), 127)}),
        ("digit", set(string.digits)),
        ("graph", {*string.ascii_letters, *string.digits, *PUNCTUATION}),
        ("lower", set(string.ascii_lowercase)),
        ("print", {*string.ascii_letters, *string.digits, *PUNCTUATION, " "}),
        ("punct", PUNCTUATION),
        ("space", set("\t\n\v\f\r ")),
        ("upper", set(string.ascii_uppercase)),
        ("word", {*string.ascii_letters, *string.digits, "_"}),
        ("xdigit", set(string.hexdigits)),
    ],
)
def test_posix_classes_match(name: str, letters: set[str]) -> None:
    test = pattern_classes.POSIX[name]
    assert {letter for letter in (*ASCII, "ä", "٣", "\u2003") if test(letter)} == letters


def test_perl_space_has_no_vertical_tab() -> None:
    assert {c for c in ASCII if pattern_classes.PERL["s"](c)} == set("\t\n\f\r ")


def test_inverse_matches_all_other_characters() -> None:
    other = pattern_classes.inverse(pattern_classes.is_digit)
    assert [other(c) for c in "a5ä"] == [True, False, True]
