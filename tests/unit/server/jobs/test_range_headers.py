"""Range, If-Range, If-Match and If-None-Match as defined in RFC 9110."""

import pytest

from kilnwork.server import errors
from kilnwork.server.jobs import range_headers

TAG = '"abc"'


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-30", (0, 10)),
        ("bytes=4-99", (4, 10)),
        (" BYTES = 1-2 ", (1, 3)),
        ("bytes=-", None),
        ("bytes=3-2", None),
        ("bytes=0-1,4-5", None),
        ("lines=0-1", None),
    ],
)
def test_range_header_is_parsed_or_ignored(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert range_headers.parse_range(header, size=10, if_range=None, etag=TAG) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_range_beyond_end_is_refused_with_size(header: str) -> None:
    with pytest.raises(errors.RangeNotSatisfiable) as caught:
        range_headers.parse_range(header, size=10, if_range=None, etag=TAG)
    assert caught.value.headers == ((b"content-range", b"bytes */10"),)


@pytest.mark.parametrize(("tag", "expected"), [(TAG, (0, 1)), ('W/"abc"', None), ('"x"', None)])
def test_if_range_uses_strong_comparison(tag: str, expected: tuple[int, int] | None) -> None:
    assert range_headers.parse_range("bytes=0-0", size=10, if_range=tag, etag=TAG) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
        ("*", True),
        (TAG, True),
        ('"x", W/"abc"', True),
        ('"x"', False),
        ("abc", False),
    ],
)
def test_if_none_match_uses_weak_comparison(header: str | None, *, expected: bool) -> None:
    assert range_headers.matches_any(header, TAG) is expected


@pytest.mark.parametrize("header", [None, "*", TAG, '"x", "abc"'])
def test_if_match_accepts_current_version(header: str | None) -> None:
    range_headers.check_match(header, TAG)


@pytest.mark.parametrize("header", ['"x"', 'W/"abc"', ""])
def test_if_match_refuses_another_version(header: str) -> None:
    with pytest.raises(errors.PreconditionFailed, match="it is"):
        range_headers.check_match(header, TAG)
