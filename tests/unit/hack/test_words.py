"""`hack.words`: which words it finds, where they are allowed, and which paths exceed their
limit.
"""

import pytest
from hack import words

LIST = (
    "# a comment\n"
    "word\tanswer(?:s|ed)?\tresponse\n"
    "word\t(?:give|gives)[ _]up\tstop retrying\n"
    "word\tbears?\thas\n"
    "allow\t*\tthe right answer\ta puzzle\n"
    "allow\tdocs/\tbears fruit\tan idiom\n"
    "limit\tsrc/\t1\n"
    "limit\tsrc/room/\t2\n"
)
MADE = words.Words(LIST)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("an answer, and its Answers", ["answer", "Answers"]),
        ("def _answer(wanted_answer):", ["answer", "answer"]),
        ("class LateAnswer:", ["Answer"]),
        ("ANSWERED_S = 1", ["ANSWERED"]),
        ("it gives up; def give_up():", ["gives up", "give_up"]),
        ("Authorization: Bearer x; forbear; answering", []),
        ("this is the right answer", []),
    ],
)
def test_words_are_found_in_texts_and_names(line: str, found: list[str]) -> None:
    assert [use.word for use in MADE.uses("src/a.py", line)] == found


def test_use_has_its_place_and_the_replacement() -> None:
    (use,) = MADE.uses("src/a.py", "one\nit bears much\n")
    assert use == words.Use("src/a.py", 2, "bears", "has")


def test_exception_holds_below_its_path() -> None:
    assert not list(MADE.uses("docs/a.md", "a tree bears fruit"))
    assert list(MADE.uses("src/a.py", "a tree bears fruit"))


def uses(path: str, count: int) -> list[words.Use]:
    return list(MADE.uses(path, "answer\n" * count))


def test_uses_over_the_limit_are_listed() -> None:
    lines, lower = words.over(MADE, [*uses("src/a.py", 2), *uses("src/room/b.py", 2)])
    assert lower == []
    assert lines == [
        "src/a.py:1: 'answer': write response",
        "src/a.py:2: 'answer': write response",
        "src/: 2 uses, 1 allowed",
    ]


def test_path_without_a_limit_may_have_none() -> None:
    found = [*uses("src/a.py", 1), *uses("src/room/b.py", 2), *uses("bench/a.py", 1)]
    lines, _ = words.over(MADE, found)
    assert lines[-1] == "elsewhere: 1 uses, 0 allowed"


def test_limit_that_can_be_lowered_is_shown_without_failing() -> None:
    found = [*uses("src/a.py", 1), *uses("src/room/b.py", 1)]
    lines, lower = words.over(MADE, found)
    assert lines == []
    assert lower == ["src/room/: 1 uses: lower its limit of 2 in words.tsv"]


def test_malformed_line_is_rejected() -> None:
    with pytest.raises(ValueError, match="with tabs between"):
        words.Words("word answer response")


def test_project_keeps_its_own_list() -> None:
    made = words.Words(words.LIST.read_text())
    assert list(made.uses("src/a.py", "nobody")) == [
        words.Use("src/a.py", 1, "nobody", "no client, another process, any user")
    ]
