"""Sessions of drivers with a scripted dispatcher, and calls without task functions."""

from typing import Any

from kilnwork.api import attempts, calls, task
from kilnwork.sdk import driver_session, futures, session
from support import scripted_dispatcher

SPEC = task.TaskSpec(call=task.Call(function="tests:nothing"))


def open_driver(
    dispatcher: scripted_dispatcher.ScriptedDispatcher, **options: Any
) -> driver_session.Driver:
    """Return an open driver, which the caller closes."""
    settings: dict[str, Any] = {"connect": dispatcher.connect, "credential": lambda: "token"}
    made = driver_session.Driver(**(settings | options))
    made.open(timeout_s=10)
    return made


def submit(on: session.Session, text: str = "1", **more: Any) -> futures.CallFuture[Any]:
    """Submit a call whose arguments are this JSON."""
    arguments = more.pop("arguments", scripted_dispatcher.json(text))
    number = on.template(more.pop("spec", SPEC))
    return on.submit(number, function="tests:nothing", arguments=arguments, **more)


def ended_result(
    number: int, state: task.State, reason: str = "", message: str = ""
) -> calls.CallResult:
    """Return the result of a call that ended without a payload."""
    return calls.CallResult(number, state, reason, message)


def failed_result(number: int, payload: attempts.Payload) -> calls.CallResult:
    return calls.CallResult(number, task.State.FAILED, "Raised", "", payload)
