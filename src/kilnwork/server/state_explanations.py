"""Explanations of task states: one sentence with the state of a task, its reason, and details.

Does no I/O and reads no clock. Used by `GET …/why` for tasks of the journal and by `kiln why` for
Task objects.
"""

import contextlib
from typing import Any, Self

import msgspec

from kilnwork.api import attempts, quantities, reasons, task
from kilnwork.kit import clock


class WhyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a task from which the sentence is made. Times are seconds since the epoch,
    None if unknown.

    `loss`: why the newest lost attempt was lost. `progress`: the latest progress report of the
    running attempt, "" if there is none. `own_pod`: `worker` names a Pod that runs only this task;
    `of_executor`: `worker` names a process of an executor. `memory`: memory of the task's worker as
    a quantity, "" if unknown.
    """

    name: str
    state: str = ""
    reason: str = ""
    message: str = ""
    worker: str = ""
    own_pod: bool = False
    of_executor: bool = False
    node: str = ""
    attempt: int = 0
    losses: int = 0
    loss: str = ""
    exit_code: int | None = None
    started: float | None = None
    finished: float | None = None
    progress: str = ""
    suspended: bool = False
    """No further attempt starts until it is resumed; a running attempt continues."""
    usage: attempts.Usage | None = None
    memory: str = ""

    @classmethod
    def of_object(cls, found: dict[str, Any]) -> Self:
        """Return the facts of a Task object."""
        name, status = found["metadata"]["name"], found.get("status") or {}
        return cls(
            name=name,
            state=status.get("state", ""),
            reason=status.get("reason", ""),
            message=status.get("message", ""),
            worker=status.get("podName", ""),
            own_pod="pod" in found.get("spec", {}),
            of_executor=not task.REQUESTS.isdisjoint(found.get("spec", {})),
            node=status.get("nodeName", ""),
            attempt=status.get("attempts", 0),
            losses=status.get("losses", 0),
            exit_code=status.get("exitCode"),
            suspended=bool(found.get("spec", {}).get("suspend")),
            started=_time(status.get("startTime")),
            finished=_time(status.get("finishTime")),
        )


def _time(text: str | None) -> float | None:
    if not text:
        return None
    with contextlib.suppress(ValueError):
        return clock.parse_rfc3339(text)
    return None


def sentence(facts: WhyFacts, *, now: float) -> str:
    """Explain the state of a task in one sentence."""
    if facts.state == task.State.RUNNING:
        return _running(facts, now=now) + _suspended_text(facts)
    if facts.state == task.State.SUCCESS and facts.reason == reasons.Reason.CACHED:
        return f"Task {facts.name} did not have to run ({facts.reason}): {_reason_text(facts)}"
    if facts.state == task.State.SUCCESS:
        return _ended(f"Task {facts.name} succeeded{_duration_text(facts)}", facts)
    if facts.state in (task.State.FAILED, task.State.KILLED):
        verb = "failed" if facts.state == task.State.FAILED else "was killed"
        return _ended(f"Task {facts.name} {verb}{_duration_text(facts)} ({facts.reason})", facts)
    if not facts.state:
        return (
            f"Task {facts.name} has not been looked at yet: the server is starting or busy "
            "(`kiln status` shows it), or it serves other namespaces."
        )
    return f"Task {facts.name} is {facts.state} ({facts.reason}): {_reason_text(facts)}"


def _running(facts: WhyFacts, *, now: float) -> str:
    what = "in Pod" if facts.own_pod else "by executor" if facts.of_executor else "on worker"
    where = f" {what} {facts.worker}" if facts.worker else ""
    where += f" (node {facts.node})" if facts.node else ""
    since = "" if facts.started is None else f" for {_format_duration(now - facts.started)}"
    text = f"Task {facts.name} runs{since}{where}, attempt {facts.attempt}"
    text += f": {facts.progress}" if facts.progress else ""
    if facts.reason in ("", reasons.Reason.STARTED):
        return f"{text}; {facts.message}." if facts.message else f"{text}{_losses_text(facts)}."
    return f"{text} ({facts.reason}): {_reason_text(facts)}"


def _suspended_text(facts: WhyFacts) -> str:
    if not facts.suspended:
        return ""
    return f" It is suspended: no other attempt starts before `kiln resume {facts.name}`."


def _ended(start: str, facts: WhyFacts) -> str:
    code = facts.exit_code
    number = f" after {facts.attempt} attempts" if facts.attempt > 1 else ""
    number += _losses_text(facts)
    if facts.state == task.State.SUCCESS:
        return f"{start}{number}.{usage_sentence(facts)}"
    because = _reason_text(facts).removesuffix(".")
    if code is not None and str(code) not in facts.message:
        because += f", exit code {code}"
    if code:
        because += f"; `kiln logs {facts.name}` shows what it printed"
    return f"{start}{number}: {because}.{usage_sentence(facts)}"


def usage_sentence(facts: WhyFacts) -> str:
    """Return a sentence about the resources that the newest attempt has used, and those of its
    worker.

    It begins with a space, and is "" if nothing is known.
    """
    if facts.usage is None:
        return ""
    text = f" It used {facts.usage.cpu_s:.1f} s of CPU"
    peak = facts.usage.peak_bytes
    if peak is None:
        return f"{text}."
    text += f" and up to {format_bytes(peak)} of memory"
    has = quantities.amount(facts.memory)
    return f"{text}, of {format_bytes(int(has))} that its worker has." if has else f"{text}."


def format_bytes(number: int) -> str:
    """Format a number of bytes as a text such as `1.9 GiB`."""
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.1f} {unit}".replace(".0 ", " ")


def _losses_text(facts: WhyFacts) -> str:
    """Return a text about the number of lost attempts and, if it is known, why the last one was
    lost.
    """
    if not facts.losses:
        return ""
    number = "one was" if facts.losses == 1 else f"{facts.losses} were"
    cause = f" ({facts.loss})" if facts.loss else ""
    return (
        f", of which {number} lost{cause}" if _final(facts) else f"; before, {number} lost{cause}"
    )


def _final(facts: WhyFacts) -> bool:
    return task.State(facts.state).final


def _reason_text(facts: WhyFacts) -> str:
    """Return the message of the task's state, which has the details, or else the meaning of its
    reason.
    """
    text = facts.message.strip() or _meaning(facts.reason)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _meaning(reason: str) -> str:
    known = {member.value: member.sentence for member in reasons.Reason}
    return known.get(reason, "no reason is known")


def _duration_text(facts: WhyFacts) -> str:
    if facts.started is None or facts.finished is None:
        return ""
    return f" in {_format_duration(facts.finished - facts.started)}"


def _format_duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{int(seconds)} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min"
    return f"{int(seconds // 3600)} h"
