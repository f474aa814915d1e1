"""Tasks as JSON documents of `/v1`, with the field names of a Task's status.

Pure; used by `task_api`. Commands, environment, arguments and inputs are never shown: users who may
read them can read the object. Nothing is unpickled: a Python result is shown by type and size, an
error by its text.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.kit import clock, ids
from kilnwork.server import state_explanations

_decode_error: msgspec.msgpack.Decoder[attempts.ErrorInfo] = msgspec.msgpack.Decoder(
    attempts.ErrorInfo
)


def retried(value: model.Retried) -> dict[str, Any]:
    """Return the document of the tasks that run again.

    It has the ids of `tasks`, in order; the names of `objects` whose `spec.run` has to be raised;
    and the number of failed children that are `waiting` until their parents ask for them.
    """
    return {
        "tasks": [ids.task_text(one) for one in value.tasks],
        "objects": list(value.declared),
        "waiting": value.left,
    }


def task(view: model.TaskView, *, parent: model.TaskView | None = None) -> dict[str, Any]:
    """Return the document of one task, without members that have no value. `parent`: the task's
    parent, if it has one and that is in the journal.
    """
    document = {
        "id": ids.task_text(view.task),
        "namespace": view.namespace,
        "name": view.name,
        "clusterName": (
            None
            if api_task.is_executor_queue(view.cluster)
            else api_task.queue_cluster(view.cluster)
        ),
        "function": view.function or None,
        "declared": view.declared,
        "run": view.run,
        "state": str(view.state),
        "reason": str(view.reason),
        "message": view.message,
        "attempts": view.attempts,
        "failures": view.failures,
        "losses": view.losses,
        "podName": view.worker or None,
        "nodeName": view.node or None,
        "suspended": (view.suspended and not view.state.final) or None,
        "exitCode": view.exit_code,
        "cpuSeconds": None if view.usage is None else round(view.usage.cpu_s, 6),
        "peakMemoryBytes": None if view.usage is None else view.usage.peak_bytes,
        "result": _result(view),
        "error": error(view),
        "creationTime": clock.rfc3339_micro(view.created),
        "startTime": _time(view.started),
        "finishTime": _time(view.finished),
        "stopped": view.stopped,
        "children": msgspec.to_builtins(view.children) if view.children.total else None,
        "progress": None if view.progress is None else _progress(view.progress),
        "parent": None if view.parent is None else str(view.parent),
        "parentName": None if parent is None else parent.name,
        "parentFunction": None if parent is None else parent.function or None,
    }
    return {key: value for key, value in document.items() if value is not None}


def counts(found: Iterable[model.TaskCount]) -> dict[str, Any]:
    """Return the document of task counts: `items`, one per namespace, function and state, and
    `states`, the sums by state.
    """
    items, states = [], Counter[str]()
    for one in found:
        item = {"namespace": one.namespace, "function": one.function, "declared": one.declared}
        items.append({**item, "state": one.state.value, "number": one.number})
        states[one.state.value] += one.number
    known = (state.value for state in api_task.State)
    return {"items": items, "states": {state: states[state] for state in known if states[state]}}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else clock.rfc3339_micro(seconds)


def _progress(progress: model.Progress) -> dict[str, Any]:
    return {"fraction": progress.fraction, "message": progress.message}


def _result(view: model.TaskView) -> dict[str, Any] | None:
    payload = view.result
    if payload is None or payload.media_type == attempts.ERROR:
        return None
    document: dict[str, Any] = {
        "mediaType": payload.media_type,
        "sizeBytes": payload.size if payload.digest is not None else len(payload.data),
    }
    if payload.digest is not None:
        document["digest"] = f"sha256:{payload.digest.hex()}"
    elif payload.media_type == attempts.JSON:
        document["value"] = msgspec.Raw(payload.data)
    return document


def error(view: model.TaskView) -> dict[str, Any] | None:
    """Return the document of the Python exception that ended the task, or None if there was none or
    it is too large to show.
    """
    payload = view.result
    if payload is None or payload.media_type != attempts.ERROR or payload.digest is not None:
        return None
    try:
        return _error(_decode_error.decode(payload.data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _error(info: attempts.ErrorInfo) -> dict[str, Any]:
    document = {
        "type": info.type,
        "text": info.text,
        "notes": list(info.notes),
        "traceback": info.traceback,
        "cause": None if info.cause is None else _error(info.cause),
    }
    return {key: value for key, value in document.items() if value}


def facts(view: model.TaskView, *, memory: str = "") -> state_explanations.WhyFacts:
    """Return the facts of a task for `state_explanations.sentence`. `memory`: the memory of the
    task's worker, as in `ports.ClusterSummary`.
    """
    return state_explanations.WhyFacts(
        name=view.name,
        state=str(view.state),
        reason=str(view.reason),
        message=view.message,
        worker=view.worker,
        own_pod=view.cluster == api_task.executor_queue("pod"),
        of_executor=any(
            view.cluster.startswith(api_task.executor_queue(name)) for name in api_task.OUTSIDE
        ),
        node=view.node,
        attempt=view.attempts,
        suspended=view.suspended,
        usage=view.usage,
        memory=memory,
        losses=view.losses,
        loss=view.loss,
        exit_code=view.exit_code,
        started=view.started,
        finished=view.finished,
        progress="" if view.progress is None else _progress_text(view.progress),
    )


def _progress_text(progress: model.Progress) -> str:
    """Return progress as a text such as `40 %, reading page 3`; either part may be missing."""
    fraction = "" if progress.fraction is None else f"{progress.fraction:.0%}".replace("%", " %")
    return ", ".join(part for part in (fraction, progress.message) if part)
