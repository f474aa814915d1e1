"""Result of one task as raw bytes, with their media type: `GET …/tasks/REF/result`.

Used by `task_api`, and by `kiln result --data`, which reads a journal without a server. A blob is
streamed from its file. Nothing is unpickled: a Python object that is not JSON is sent as a pickle,
with its media type.
"""

import base64
import hashlib
from pathlib import Path

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs as data_blobs
from kilnwork.dispatch import model
from kilnwork.kit import asgi, ids
from kilnwork.server import blobs, errors

_decode_stream = msgspec.msgpack.Decoder(list[attempts.Payload]).decode


async def send(
    view: model.TaskView, root: Path, request: asgi.Request, response: asgi.Response
) -> None:
    """Send the result of a task, or 204 if it has none. `root`: parent of the directories of blobs
    by namespace.

    Raises `Conflict` if the task has not ended or did not succeed.
    """
    payload = _succeeded(view)
    if payload is None:
        await response.empty(204)
        return
    if payload.digest is None:
        headers = _digest(hashlib.sha256(payload.data).digest())
        await response.send(200, payload.media_type, payload.data, headers=headers)
        return
    kept = data_blobs.Blobs(root / view.namespace, durable=True)
    try:
        descriptor = kept.descriptor(payload.digest)
    except data_errors.BlobMissing as error:
        raise errors.NotFound(
            f"the result of task {_name(view)} is gone: {data_blobs.text(payload.digest)} is not "
            "among the blobs of this manager"
        ) from error
    headers = _digest(payload.digest)
    await blobs.send(descriptor, payload.media_type, request, response, headers=headers)


def _succeeded(view: model.TaskView) -> attempts.Payload | None:
    name = _name(view)
    if not view.state.final:
        raise errors.Conflict(f"task {name} is {view.state}, so it has no result yet")
    if view.state is not api_task.State.SUCCESS:
        why = f"{view.reason}: {view.message}" if view.message else view.reason
        raise errors.Conflict(f"task {name} is {view.state} and has no result: {why}")
    return flatten_stream(view.result)


def flatten_stream(payload: attempts.Payload | None) -> attempts.Payload | None:
    """Return a task's result as a single value.

    The values that a generator has yielded become a JSON list, if all of them are JSON.
    """
    if payload is None or payload.media_type != attempts.STREAM or payload.digest is not None:
        return payload
    yielded = _decode_stream(payload.data)
    if any(one.media_type != attempts.JSON or one.digest is not None for one in yielded):
        return payload
    data = msgspec.json.encode([msgspec.Raw(one.data) for one in yielded])
    return attempts.Payload(attempts.JSON, data)


def _digest(digest: bytes) -> asgi.Headers:
    """Return the Repr-Digest header (RFC 9530), the digest of the whole result even if only a part
    is sent.
    """
    return ((b"repr-digest", b"sha-256=:" + base64.b64encode(digest) + b":"),)


def _name(view: model.TaskView) -> str:
    return view.name or ids.task_text(view.task)
