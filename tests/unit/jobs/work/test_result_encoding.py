"""Lines of results are JSON or the mapper's own text, and always one line."""

from typing import Any

import pytest

from kilnwork.jobs.work import errors, result_encoding

JSON, TEXT = result_encoding.encoder(text=False), result_encoding.encoder(text=True)


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


class Array:
    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "of_json", "of_text"),
    [
        ({"a": 1}, b'{"a":1}', b'{"a":1}'),
        ("x", b'"x"', b"x"),
        (b"as it is", b"as it is", b"as it is"),
        (b"with its end\n", b"with its end", b"with its end"),
        (Array(), b"[1,2]", b"[1,2]"),
        (True, b"true", b"true"),
    ],
)
def test_value_is_encoded_as_one_line(value: object, of_json: bytes, of_text: bytes) -> None:
    assert (JSON(value), TEXT(value)) == (of_json, of_text)


@pytest.mark.parametrize(
    ("encode", "value", "why"),
    [
        (JSON, object(), "JSON cannot write a builtins.object"),
        (JSON, CIRCLE, "cannot be written as JSON"),
        (JSON, b"a\nb\n", "the result is 2 lines"),
        (TEXT, "a\nb\nc", "the result is 3 lines"),
        (TEXT, "\ud800", "no text that UTF-8 can write"),
    ],
)
def test_value_that_is_not_one_line_is_refused(
    encode: result_encoding.Encode, value: Any, why: str
) -> None:
    with pytest.raises(errors.BadResult, match=why):
        encode(value)
