"""Kube events: counted up, bounded, written in the background."""

import json
from typing import Any

import aiohttp.web
import pytest

from kilnwork.api import kinds
from kilnwork.kit import backoff, clock
from kilnwork.kube import client, events
from support import scripted_apiserver

TASK = events.reference(kinds.TASKS, {"metadata": {"name": "t", "namespace": "x", "uid": "u-1"}})


def _note(
    aggregator: events.Aggregator, message: str, *, now_s: float = 0.0, reason: str = "R"
) -> events.Entry | None:
    return aggregator.note(TASK, events.NORMAL, reason, message=message, now_s=now_s)


def test_the_same_again_is_counted() -> None:
    aggregator = events.Aggregator()
    first, second = _note(aggregator, "m"), _note(aggregator, "m", now_s=5)
    assert first is second
    assert second is not None
    assert (second.count, second.first_s, second.last_s) == (2, 0, 5)
    assert _note(aggregator, "other") is not first


def test_many_texts_of_one_reason_share_an_entry() -> None:
    aggregator = events.Aggregator()
    entries = [_note(aggregator, f"m{n}") for n in range(events.SIMILAR + 3)]
    combined = entries[-1]
    assert combined is not None
    assert entries[-3] is entries[-2] is combined
    assert combined.message == "(combined from similar events): m12"
    assert combined.count == 3
    later = _note(aggregator, "m99", now_s=events.SIMILAR_S + 1)
    assert later is not None
    assert later.message == "m99"


def test_events_of_one_object_are_rate_limited() -> None:
    aggregator = events.Aggregator()
    taken = [_note(aggregator, "m") is not None for _ in range(events.BURST + 5)]
    assert sum(taken) == events.BURST
    assert _note(aggregator, "m", now_s=events.REFILL_S) is not None
    assert _note(aggregator, "m", now_s=events.REFILL_S) is None


def test_long_texts_are_cut() -> None:
    entry = _note(events.Aggregator(), "m" * 5000)
    assert entry is not None
    assert len(entry.message) == events.MESSAGE_CHARS


def _recorder(kube: client.Client) -> events.Recorder:
    return events.Recorder(
        kube,
        component="kiln-test",
        time=clock.ManualClock(),
        retries=backoff.Backoff(base_s=0.001, max_s=0.001),
    )


async def test_kube_events_are_written_and_counted_up(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond({})
    recorder = _recorder(kube)
    recorder.emit(TASK, events.WARNING, "BackOff", "again")
    recorder.emit(TASK, events.WARNING, "BackOff", "again")
    await recorder.start()
    assert await recorder.flush()
    recorder.emit(TASK, events.WARNING, "BackOff", "again")
    assert await recorder.flush()
    await recorder.stop()
    (method, path, _, body), (method2, path2, _, body2) = stand.asked
    assert (method, path) == ("POST", "/api/v1/namespaces/x/events")
    written: dict[str, Any] = json.loads(body)
    name = written["metadata"]["name"]
    assert written["involvedObject"] == {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "name": "t",
        "namespace": "x",
        "uid": "u-1",
    }
    assert (written["type"], written["reason"], written["count"]) == ("Warning", "BackOff", 2)
    assert written["firstTimestamp"] == "2023-11-14T22:13:20Z"
    assert written["source"]["component"] == "kiln-test"
    assert (method2, path2) == ("PATCH", f"/api/v1/namespaces/x/events/{name}")
    assert json.loads(body2)["count"] == 3


async def test_expired_kube_event_is_created_again(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        status = 404 if request.method == "PATCH" else 201
        return aiohttp.web.json_response({}, status=status)

    stand.handler = handler
    recorder = _recorder(kube)
    await recorder.start()
    for _ in range(2):
        recorder.emit(TASK, events.NORMAL, "R", "m")
        assert await recorder.flush()
    await recorder.stop()
    assert [method for method, _, _, _ in stand.asked] == ["POST", "PATCH", "POST"]
    names = [json.loads(stand.asked[i][3])["metadata"]["name"] for i in (0, 2)]
    assert names[0] != names[1]
    assert json.loads(stand.asked[2][3])["count"] == 1


@pytest.mark.parametrize(("status", "tries"), [(403, 1), (503, events.TRIES)])
async def test_event_that_cannot_be_written_is_dropped(
    kube: client.Client,
    stand: scripted_apiserver.ScriptedApiServer,
    caplog: pytest.LogCaptureFixture,
    status: int,
    tries: int,
) -> None:
    stand.respond({"message": "no"}, status=status)
    recorder = _recorder(kube)
    await recorder.start()
    recorder.emit(TASK, events.NORMAL, "R", "m")
    assert await recorder.flush()
    await recorder.stop()
    assert len(stand.asked) == tries
    assert caplog.messages == ["kube event dropped"]


async def test_a_kube_event_made_unheard_is_not_made_twice(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    statuses = iter([504, 409, 200])

    async def handler(_: aiohttp.web.Request) -> aiohttp.web.Response:
        status = next(statuses)
        reason = {"reason": "AlreadyExists"} if status == 409 else {}
        return aiohttp.web.json_response(reason, status=status)

    stand.handler = handler
    recorder = _recorder(kube)
    await recorder.start()
    for _ in range(2):
        recorder.emit(TASK, events.NORMAL, "R", "m")
        assert await recorder.flush()
    await recorder.stop()
    assert [method for method, _, _, _ in stand.asked] == ["POST", "POST", "PATCH"]
    assert stand.asked[0][3] == stand.asked[1][3]


async def test_names_stay_legal_for_long_objects(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond({})
    recorder = _recorder(kube)
    await recorder.start()
    about = events.Reference(api_version="v1", kind="Pod", name="a" * 253, namespace="x")
    recorder.emit(about, events.NORMAL, "R", "m")
    assert await recorder.flush()
    await recorder.stop()
    assert len(json.loads(stand.asked[0][3])["metadata"]["name"]) <= 253
