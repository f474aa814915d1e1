"""Frames: whatever the pieces, the same messages come out; rubbish closes the link, never more."""

import struct
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import attempts, calls, task
from kilnwork.channel import errors, frames, messages
from kilnwork.kit import ids
from support import message_samples

REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 2)
OUTCOME = attempts.Outcome(
    attempts.Ending.SUCCEEDED, "Succeeded", result=attempts.Payload("application/json", b"{}")
)
FROM_WORKER: list[messages.FromWorker] = [
    messages.Hello(
        1, "worker", b"s" * 16, "secret", "ns", "c", "w-0", "uid", "n", 2, 7,
        (messages.Running(REF),),
    ),
    messages.Renew(3),
    messages.Started(1, REF, 12.5),
    messages.Finished(2, REF, OUTCOME),
    messages.Log(REF, 0, b"\x00hello"),
    messages.Progress(REF, 0.5, "half"),
    messages.Spawn(3, REF, 1, None, None, task.TaskSpec(command=("true",)), b"{}"),
    messages.GetTask(4, REF, ids.TaskId(bytes(16)), 1.5),
]  # fmt: skip
FROM_ATTEMPT: list[messages.FromAttempt] = [
    messages.AttemptHello(1, REF, "secret", "ns", "p-0", 7, runs_call=True),
    messages.Renew(3),
    messages.GetTask(4, REF, ids.TaskId(bytes(16)), 1.5),
    messages.CallsEnded(2, (message_samples.END,)),
    messages.Progress(REF, 0.5, "half"),
]
HELLOS: list[frames.Sent] = [
    FROM_WORKER[0],
    message_samples.FROM_DRIVER[0],
    message_samples.FROM_SLOT[0],
    FROM_ATTEMPT[0],
]
TO_WORKER: list[messages.ToWorker] = [
    messages.Welcome(7, 10.0, 3.0, (messages.Decision(REF, messages.Verdict.KEEP, 12),)),
    messages.Refused("version", "speak 1", retry=False),
    messages.Renewed(3),
    messages.Run(REF, "ns", "t", task.TaskSpec(priority=3), None),
    messages.Stop(REF, 30.0, "Killed"),
    messages.Acknowledged(9),
    messages.LogKept(REF, 10),
    messages.Response(4, 200, b"{}"),
]


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda m: type(m).__name__)
def test_worker_messages_arrive_unchanged(message: messages.FromWorker) -> None:
    (body,) = frames.Cutter().feed(frames.encode(message))
    assert frames.decode_from_worker(body) == message


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda m: type(m).__name__)
def test_dispatcher_messages_arrive_unchanged(message: messages.ToWorker) -> None:
    (body,) = frames.Cutter().feed(frames.encode(message))
    assert frames.decode_to_worker(body) == message


@pytest.mark.parametrize(
    ("decode", "said"),
    [
        (frames.decode_from_driver, message_samples.FROM_DRIVER),
        (frames.decode_from_slot, message_samples.FROM_SLOT),
        (frames.decode_from_attempt, FROM_ATTEMPT),
        (frames.decode_to_driver, message_samples.TO_DRIVER),
        (frames.decode_to_slot, message_samples.TO_SLOT),
    ],
)
def test_driver_and_slot_messages_arrive_unchanged(
    decode: Callable[[bytes], frames.Sent], said: list[frames.Sent]
) -> None:
    bodies = frames.Cutter().feed(b"".join(map(frames.encode, said)))
    assert [decode(body) for body in bodies] == said


@pytest.mark.parametrize("message", HELLOS, ids=lambda m: type(m).__name__)
def test_hello_of_each_kind_of_peer_is_decoded(message: frames.Sent) -> None:
    assert frames.decode_hello(frames.encode(message)[4:]) == message


def test_peer_may_only_send_messages_of_its_kind() -> None:
    report = frames.encode(message_samples.OF_SLOTS[1])[4:]
    with pytest.raises(errors.MalformedFrame, match="not a message of a driver"):
        frames.decode_from_driver(report)
    with pytest.raises(errors.MalformedFrame, match="not a message of a worker"):
        frames.decode_from_worker(report)
    with pytest.raises(errors.MalformedFrame, match="not a message of a new peer"):
        frames.decode_hello(report)


@pytest.mark.parametrize(
    "field",
    [
        {"started": float("nan")},
        {"seconds": -1.0},
        {"delegate": b"short"},
        {"ref": attempts.AttemptRef(ids.TaskId(bytes(16)), -1, 1)},
        {"ref": attempts.AttemptRef(ids.TaskId(bytes(16)), 2**60, 1)},
        {"payload": attempts.Payload(attempts.JSON, b"", b"no digest", 1)},
        {"payload": attempts.Payload(attempts.JSON, b"", None, 2**62)},
        {"payload": attempts.Payload("x" * 2000, b"")},
    ],
    ids=str,
)
def test_bytes_beyond_a_message_in_a_frame_are_refused(field: dict[str, object]) -> None:
    end = msgspec.structs.replace(message_samples.END, **field)
    body = frames.encode(messages.CallsEnded(1, (end,)))[4:]
    with pytest.raises(errors.MalformedFrame):
        frames.decode_from_slot(body)


@pytest.mark.parametrize("size", [1, 1000, 60_000, 200_000])
def test_batch_is_split_into_frames(size: int) -> None:
    payload = attempts.Payload("application/json", bytes(size))
    run = calls.CallRun(REF, 1, payload, "n")
    plain = ((REF.task, REF.run, REF.attempt), 1, payload, "n")
    made = list(frames.encode_batch(messages.Calls, [plain] * 40))
    needed = 40 * size // frames.BATCH_BYTES
    assert needed <= len(made) <= 2 * (needed + 1)
    assert all(len(frame) <= frames.BATCH_BYTES + size for frame in made)
    bodies = frames.Cutter().feed(b"".join(made))
    messages_read = [frames.decode_to_slot(body) for body in bodies]
    runs = [read for m in messages_read if isinstance(m, messages.Calls) for read in m.runs]
    assert runs == [run] * 40


def test_batch_up_to_the_limit_is_one_frame() -> None:
    def frames_of(size: int) -> list[bytes]:
        half = attempts.Payload("application/json", bytes(size // 2))
        rest = attempts.Payload("application/json", bytes(size - size // 2))
        plain = [((REF.task, REF.run, REF.attempt), 1, one, "n") for one in (half, rest)]
        return list(frames.encode_batch(messages.Calls, plain))

    assert frames.BATCH_BYTES == 1 << 18
    (one,) = frames_of(1 << 17)
    around = len(one) - 4 - (1 << 17)
    (full,) = frames_of(frames.BATCH_BYTES - around)
    assert len(full) == 4 + frames.BATCH_BYTES
    assert len(frames_of(frames.BATCH_BYTES - around + 1)) == 2


def test_item_of_exactly_a_frame_is_sent() -> None:
    def encode_item(size: int) -> list[bytes]:
        item = (1, "Success", "", "", attempts.Payload("application/json", bytes(size)))
        return list(frames.encode_batch(messages.Results, [item]))

    (frame,) = encode_item(messages.MAX_FRAME_BYTES // 2)
    around = len(frame) - 4 - messages.MAX_FRAME_BYTES // 2
    (frame,) = encode_item(messages.MAX_FRAME_BYTES - around)
    assert len(frame) == 4 + messages.MAX_FRAME_BYTES
    assert len(frames.Cutter().feed(frame)) == 1
    with pytest.raises(errors.FrameTooLarge, match="one item of Results takes 1048577 bytes"):
        encode_item(messages.MAX_FRAME_BYTES - around + 1)


def test_item_larger_than_a_frame_is_refused() -> None:
    payload = attempts.Payload("application/json", bytes(messages.MAX_FRAME_BYTES))
    good = attempts.Payload("application/json", b"1")
    items = [(1, "Success", "", "", payload) for payload in (good, payload)]
    with pytest.raises(errors.FrameTooLarge, match="one item of Results"):
        list(frames.encode_batch(messages.Results, items))


@given(st.lists(st.sampled_from(FROM_WORKER), max_size=8), st.data())
def test_any_split_of_the_stream_gives_the_same_messages(
    sent: list[messages.FromWorker], data: st.DataObject
) -> None:
    stream = b"".join(frames.encode(message) for message in sent)
    cutter, received = frames.Cutter(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += [frames.decode_from_worker(body) for body in cutter.feed(stream[:size])]
        stream = stream[size:]
    assert received == sent


@given(st.binary(max_size=400))
def test_random_bytes_give_messages_or_one_error(data: bytes) -> None:
    try:
        bodies = frames.Cutter().feed(data)
    except errors.MalformedFrame:
        return
    for body in bodies:
        try:
            assert isinstance(frames.decode_from_worker(body), messages.FromWorker)
        except errors.MalformedFrame:
            continue


@given(st.sampled_from(FROM_WORKER), st.data())
def test_damaged_body_gives_a_message_or_one_error(
    message: messages.FromWorker, data: st.DataObject
) -> None:
    body = bytearray(frames.encode(message)[4:])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(frames.decode_from_worker(bytes(body)), messages.FromWorker)
    except errors.MalformedFrame:
        return


@given(st.sampled_from(FROM_WORKER), st.data())
def test_truncated_body_is_one_error(message: messages.FromWorker, data: st.DataObject) -> None:
    body = frames.encode(message)[4:]
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(errors.MalformedFrame):
        frames.decode_from_worker(body[:cut])


def test_oversized_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(errors.FrameTooLarge, match="at most 1048576"):
        frames.Cutter().feed(struct.pack(">I", messages.MAX_FRAME_BYTES + 1))


def test_frame_of_the_maximum_size_is_cut() -> None:
    body = bytes(messages.MAX_FRAME_BYTES)
    cutter = frames.Cutter()
    assert cutter.feed(struct.pack(">I", len(body)) + body[:-1]) == []
    assert cutter.feed(body[-1:]) == [body]
    assert cutter.feed(struct.pack(">I", 1)) == []
    assert cutter.feed(b"a" + struct.pack(">I", 1) + b"b") == [b"a", b"b"]


def test_empty_frame_is_refused() -> None:
    with pytest.raises(errors.MalformedFrame, match="an empty frame"):
        frames.Cutter().feed(bytes(4))


def test_message_of_exactly_a_frame_is_sent() -> None:
    def encode(size: int) -> bytes:
        return frames.encode(messages.Log(REF, 0, bytes(size)))

    around = len(encode(messages.MAX_FRAME_BYTES // 2)) - 4 - messages.MAX_FRAME_BYTES // 2
    frame = encode(messages.MAX_FRAME_BYTES - around)
    assert len(frame) == 4 + messages.MAX_FRAME_BYTES
    assert len(frames.Cutter().feed(frame)) == 1
    with pytest.raises(errors.FrameTooLarge, match="Log takes 1048577 bytes"):
        encode(messages.MAX_FRAME_BYTES - around + 1)


POD = task.PodTemplate(spec={"containers": ["MARK"]})


@pytest.mark.parametrize(
    ("message", "sent", "received", "cause"),
    [
        (messages.Progress(REF, 0.5, "half"), b"half", b"ha\xff\xfe", "utf-8"),
        (
            messages.Spawn(3, REF, 1, None, None, task.TaskSpec(pod=POD), b"{}"),
            b"\xa4MARK",
            b"\x91" * 100_000 + b"\xc0",
            "recursion",
        ),
        (messages.Renew(3), b"\x03", b"\xc1", "malformed"),
    ],
    ids=["text", "nesting", "byte"],
)
def test_unreadable_body_is_refused_with_its_cause(
    message: messages.FromWorker, sent: bytes, received: bytes, cause: str
) -> None:
    body = frames.encode(message)[4:]
    assert frames.decode_from_worker(body) == message
    with pytest.raises(errors.MalformedFrame, match=f"(?i)^not a message of a worker: .*{cause}"):
        frames.decode_from_worker(body.replace(sent, received))


def test_message_larger_than_a_frame_is_not_sent() -> None:
    with pytest.raises(errors.FrameTooLarge, match="Log takes"):
        frames.encode(messages.Log(REF, 0, bytes(messages.MAX_FRAME_BYTES)))


def test_dispatcher_message_is_not_decoded_as_a_worker_message() -> None:
    with pytest.raises(errors.MalformedFrame):
        frames.decode_from_worker(frames.encode(messages.Renewed(1))[4:])
