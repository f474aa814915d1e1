"""Form uploads: fields, and the file in pieces."""

import pytest

from kilnwork.server import errors
from kilnwork.server.jobs import form_upload


class _Target:
    """Stores the data, and the fields that came before it was opened."""

    slow = False

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields
        self.data = b""

    def process(self, piece: bytes) -> None:
        self.data += piece


def _part(name: str, data: bytes, *headers: bytes) -> bytes:
    head = [b'Content-Disposition: form-data; name="%s"' % name.encode(), *headers]
    return b"--b\r\n" + b"\r\n".join(head) + b"\r\n\r\n" + data + b"\r\n"


def _send(body: bytes, *, step: int = 0) -> tuple[form_upload.Form, _Target]:
    made: list[_Target] = []

    def opener(fields: dict[str, str]) -> _Target:
        made.append(_Target(fields))
        return made[-1]

    form = form_upload.Form([b"b"], opener)
    for start in range(0, len(body), step or len(body)):
        form.process(body[start : start + (step or len(body))])
    form.finish()
    return form, made[0]


END = b"--b--\r\n"


@pytest.mark.parametrize(
    ("types", "form"),
    [
        ([], False),
        (["text/csv"], False),
        ([" Multipart/Form-Data; boundary=b"], True),
        (["multipart/mixed"], None),
        (["multipart/mixed", "multipart/form-data"], True),
    ],
)
def test_form_is_recognized_by_content_type(types: list[str], *, form: bool | None) -> None:
    assert form_upload.is_form(types) is form


@pytest.mark.parametrize(
    ("types", "named"),
    [
        (["multipart/form-data"], []),
        (["multipart/form-data; boundary=abc; charset=utf-8"], [b"abc"]),
        (['multipart/form-data; BOUNDARY = "a \\"b"'], [b'a "b']),
        (["multipart/form-data; boundary=a", "multipart/form-data; boundary=b"], [b"a", b"b"]),
    ],
)
def test_boundaries_of_all_headers_are_found(types: list[str], named: list[bytes]) -> None:
    assert form_upload.boundaries(types) == named


@pytest.mark.parametrize("step", [0, 1, 7])
def test_form_is_parsed_independent_of_piece_sizes(step: int) -> None:
    body = _part("name", b"a") + _part("file", b"1\r\n2\n") + _part("priority", b"3") + END
    form, target = _send(body, step=step)
    assert form.fields == {"name": "a", "priority": "3"}
    assert target.data == b"1\r\n2\n"


@pytest.mark.parametrize(("size", "waits"), [(64 << 10, True), ((64 << 10) + 1, False)])
def test_fields_after_small_file_are_known_to_its_target(size: int, *, waits: bool) -> None:
    body = _part("file", b"x" * size) + _part("name", b"a") + END
    form, target = _send(body, step=1000)
    assert target.fields == ({"name": "a"} if waits else {})
    assert (form.before, form.fields) == (target.fields, {"name": "a"})
    assert target.data == b"x" * size


FILE = _part("file", b"1")


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (FILE, errors.BadRequest, "breaks off"),
        (_part("a", b"1") + END, errors.BadRequest, "no field named 'file'"),
        (FILE + FILE + END, errors.BadRequest, "two files"),
        (_part("a", b"1") * 2 + FILE + END, errors.BadRequest, "'a' comes more than once"),
        (_part("a", b"\xff") + FILE + END, errors.BadRequest, "'a' is not UTF-8"),
        (b"--b\r\nX: 1\r\n\r\n1\r\n" + END, errors.BadRequest, "has no name"),
        (_part("a", b"1", *[b"X: " + b"x" * 3277] * 5) + END, errors.BadRequest, "16,384 bytes"),
        (
            _part("file", b"1", b"Content-Transfer-Encoding: base64") + END,
            errors.UnsupportedMediaType,
            "base64: send it as it is",
        ),
    ],
)
def test_invalid_form_is_refused(body: bytes, error: type[errors.HttpError], message: str) -> None:
    with pytest.raises(error) as caught:
        _send(body)
    assert message in str(caught.value)


def test_identity_encodings_of_parts_are_accepted() -> None:
    _, target = _send(_part("file", b"1", b"Content-Transfer-Encoding: 8BIT") + END)
    assert target.data == b"1"


def test_form_with_more_than_100_fields_is_refused() -> None:
    fields = b"".join(_part(str(number), b"") for number in range(99))
    form, _ = _send(fields + FILE + END)
    assert len(form.fields) == 99
    with pytest.raises(errors.BadRequest, match="100 fields"):
        _send(fields + _part("more", b"") + FILE + END)


def test_fields_beyond_one_mebibyte_are_refused() -> None:
    half = b"x" * (1 << 19)
    body = _part("a", half) + _part("b", half)
    assert len(_send(body + FILE + END)[0].fields) == 2
    with pytest.raises(errors.ContentTooLarge, match="field 'c'"):
        _send(body + _part("c", b"x") + FILE + END)


@pytest.mark.parametrize("named", [[], [b"other", b"b"], [b"b", b"other"]])
def test_boundary_of_body_wins_over_other_named_ones(named: list[bytes]) -> None:
    target = _Target({})
    form = form_upload.Form(named, lambda _: target)
    form.process(FILE + END)
    form.finish()
    assert target.data == b"1"
