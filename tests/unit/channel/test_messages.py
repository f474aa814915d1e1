"""Messages on the wire: their tags stay, whatever the classes are called."""

import msgspec
import pytest

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.kit import ids

REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 2)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (messages.Response(4, 200, b"{}"), ["answer", 4, 200, b"{}"]),
        (messages.CallsEnded(1, ()), ["done", 1, []]),
        (messages.GetVariables(3, REF), ["askvariables", 3, [bytes(16), 1, 2]]),
        (messages.GetTask(4, REF, REF.task, 1.5), ["ask", 4, [bytes(16), 1, 2], bytes(16), 1.5]),
        (
            messages.Observed(REF, "Connecting", handover=b"h"),
            ["seen", [bytes(16), 1, 2], "Connecting", "", False, b"h"],
        ),
        (messages.Renew(3), ["renew", 3]),
        (messages.KillSlot(b"s"), ["killslot", b"s"]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_encoding_is_stable_across_versions(message: msgspec.Struct, fields: list[object]) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message)) == fields


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        (messages.Callback(REF, "text/plain", b"body"), True),
        (messages.Callback(REF, "text/html", b"body"), False),
        (messages.Callback(REF, "text/plain", b"bodY"), False),
        (messages.Callback(REF, "text/plainbody", b""), False),
    ],
)
def test_callback_digest_covers_type_and_body(other: messages.Callback, *, is_equal: bool) -> None:
    one = messages.Callback(REF, "text/plain", b"body")
    assert (one.digest() == other.digest()) is is_equal
    assert len(one.digest()) == 32


def test_fields_that_a_newer_peer_has_appended_are_ignored() -> None:
    encoded = msgspec.msgpack.encode(["renewed", 3, "new", 7])
    assert msgspec.msgpack.decode(encoded, type=messages.Renewed) == messages.Renewed(3)


def test_fields_that_an_older_peer_does_not_send_have_defaults() -> None:
    encoded = msgspec.msgpack.encode(["seen", [bytes(16), 1, 2], "Connecting"])
    seen = msgspec.msgpack.decode(encoded, type=messages.Observed)
    assert (seen.message, seen.parked, seen.handover) == ("", False, b"")
