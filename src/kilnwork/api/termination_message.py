"""The result of an attempt in the termination message of its sidecar.

Written by the worker's sidecar, read by executor `pod`: a JSON object in the Pod's status, of at
most `MAX_MESSAGE_BYTES`, so that small results are stored in Kubernetes alone. Larger ones are
blobs of the manager, which the message refers to.
"""

from typing import Annotated

import msgspec

from kilnwork.api import attempts, names

MAX_MESSAGE_BYTES = 4096
"""Maximum number of bytes that a kubelet reads of one container's message
(MaxContainerTerminationMessageLength)."""

MAX_POD_BYTES = 12 * 1024
"""Maximum number of bytes that a kubelet keeps of the messages of all containers of a Pod, in
equal parts (MaxPodTerminationMessageLogLength)."""

BYTES = "application/octet-stream"


class AttemptOutput(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The result of an attempt.

    It is JSON in `result`, other bytes in `data`, or the blob `digest` of `size_bytes`; none of
    them is set if nothing was written. `reason` and `message` say why the attempt failed. With a
    `message` alone, the result was lost, and another attempt may return one.
    """

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: bytes | None = None
    digest: str = ""
    size_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    media_type: str = attempts.JSON
    reason: str = ""
    message: str = ""

    @property
    def payload(self) -> attempts.Payload | None:
        """The value itself, or None if nothing was written. Raises ValueError for an invalid
        message."""
        if self.digest:
            digest = names.digest(self.digest)
            if digest is None:
                raise ValueError(f"{self.digest!r} is no digest")
            return attempts.Payload(self.media_type, b"", digest, self.size_bytes)
        if self.result is not msgspec.UNSET:
            return attempts.Payload(attempts.JSON, bytes(self.result))
        return None if self.data is None else attempts.Payload(BYTES, self.data)


def message_bytes(containers: int) -> int:
    """Return the maximum length of the message of one container in a Pod with this many
    containers.

    From 85 containers on, a reference to a blob may not fit any more; from 450 on, not even a
    reason.
    """
    return min(MAX_MESSAGE_BYTES, MAX_POD_BYTES // containers)


def of_payload(payload: attempts.Payload) -> AttemptOutput:
    """Return the message for a value, or for the blob that contains it."""
    if payload.digest is not None:
        digest = f"sha256:{payload.digest.hex()}"
        return AttemptOutput(digest=digest, size_bytes=payload.size, media_type=payload.media_type)
    if payload.media_type == attempts.JSON:
        return AttemptOutput(result=msgspec.Raw(payload.data))
    return AttemptOutput(data=payload.data, media_type=payload.media_type)


def decode(message: str) -> AttemptOutput:
    """Decode a message. Raises ValueError for a text that was not written by a sidecar."""
    return msgspec.json.decode(message, type=AttemptOutput)
