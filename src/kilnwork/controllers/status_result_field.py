"""The result of a task in the status of its object.

No I/O. Used by the statuses of Tasks, Jobs and SyncSets.
"""

import hashlib
from typing import Any

import msgspec

from kilnwork.api import attempts, json_limits, task


def result_for_status(payload: attempts.Payload | None) -> task.Result | None:
    """Return a task's result in the form of a status, with its value only if that is small JSON."""
    if payload is None:
        return None
    if payload.digest is not None:
        digest = f"sha256:{payload.digest.hex()}"
        return task.Result(media_type=payload.media_type, size_bytes=payload.size, digest=digest)
    value: Any = msgspec.UNSET
    if payload.media_type == "application/json" and len(payload.data) <= attempts.MAX_STATUS_BYTES:
        value = _value_for_status(payload.data)
    return task.Result(
        value=value,
        media_type=payload.media_type,
        size_bytes=len(payload.data),
        digest="sha256:" + hashlib.sha256(payload.data).hexdigest(),
    )


def _value_for_status(data: bytes) -> Any:
    """Return a JSON value if a status may contain it, otherwise UNSET.

    Integers must fit into 64 bits, as API servers require, and the depth is limited, so that
    readers do not fail.
    """
    try:
        value = msgspec.json.decode(data)
        json_limits.measure(value)
    except (json_limits.LimitExceeded, RecursionError):
        return msgspec.UNSET
    return value if _fits_64_bits(value) else msgspec.UNSET


def _fits_64_bits(value: Any) -> bool:
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    if isinstance(value, dict):
        return all(map(_fits_64_bits, value.values()))
    return all(map(_fits_64_bits, value)) if isinstance(value, list) else True
