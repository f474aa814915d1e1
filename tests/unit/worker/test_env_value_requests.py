"""Requests of a slot for the values of variables."""

from collections.abc import Callable

import pytest

from kilnwork.api import attempts, calls
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.sdk import errors
from kilnwork.worker import env_value_requests, slot_call_table

REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
ARGUMENTS = attempts.Payload(attempts.JSON, b"[[],{}]")


class Link:
    """A link on which `while_waiting` happens while a request waits."""

    def __init__(self) -> None:
        self.sent: list[messages.GetVariables] = []
        self.while_waiting: Callable[[], None] = lambda: None
        self.requests = env_value_requests.VariableRequests(self.sent.append, self.wait)

    def wait(self, done: Callable[[], bool]) -> None:
        assert not done()
        self.while_waiting()
        assert done()


def level() -> slot_call_table.StackLevel:
    return slot_call_table.StackLevel(calls.CallRun(REF, 1, ARGUMENTS, ""), 0.0)


def test_request_waits_for_its_response() -> None:
    link = Link()
    response = messages.Response(1, 200, b"{}")
    link.while_waiting = lambda: link.requests.resolve(response)
    assert link.requests.request(level()) is response
    assert link.sent == [messages.GetVariables(1, REF)]


def test_serials_rise() -> None:
    link = Link()
    for serial in (1, 2):
        response = messages.Response(serial, 200, b"{}")
        link.while_waiting = lambda given=response: link.requests.resolve(given)  # type: ignore[misc]
        link.requests.request(level())
    assert [one.serial for one in link.sent] == [1, 2]


def test_call_that_is_to_stop_stops_waiting() -> None:
    link, stopped = Link(), level()

    def stop() -> None:
        stopped.stop = "Killed"

    link.while_waiting = stop
    with pytest.raises(errors.Cancelled):
        link.requests.request(stopped)
    assert link.requests.pending() == []


def test_open_request_is_pending_on_a_new_link() -> None:
    link = Link()
    seen: list[list[messages.GetVariables]] = []

    def look() -> None:
        seen.append(link.requests.pending())
        link.requests.resolve(messages.Response(1, 200, b"{}"))

    link.while_waiting = look
    link.requests.request(level())
    assert seen == [[messages.GetVariables(1, REF)]]
    assert link.requests.pending() == []


def test_response_without_request_is_dropped() -> None:
    link = Link()
    link.requests.resolve(messages.Response(1, 404, b"early"))
    right = messages.Response(1, 200, b"{}")
    link.while_waiting = lambda: link.requests.resolve(right)
    assert link.requests.request(level()) is right
