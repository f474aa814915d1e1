"""The termination message of the sidecar, made from the result that the other containers have
written.

Used by `sidecar` when these containers have ended. A small result is put into the message; a larger
one is first stored as a blob of the manager, and the message names the blob.
"""

import importlib
import os
from typing import Protocol, cast

import msgspec

from kilnwork.api import attempts, reasons, termination_message
from kilnwork.kit import errors as kit_errors
from kilnwork.worker import errors, result_file, sidecar_settings

_MESSAGE_LENGTH = 512

_NO_ROOM = "so many containers leave no room for its name in the Pod's status: write it to a store"

LAST_S = 1.0
"""Seconds before the end of the grace period at which the sidecar stops trying to store a result,
so that it can still report the failure.
"""


class _Blob(Protocol):
    """The module `sidecar_result_blob`, which is imported by name only when it is needed."""

    def store_result(
        self,
        given: sidecar_settings.SidecarSettings,
        found: result_file.OutputFile,
        *,
        until: float,
    ) -> attempts.Payload: ...


def message(*, began: float | None) -> tuple[bytes, int]:
    """Return the termination message and the exit code of the sidecar, 1 if the result could not be
    stored.

    `began`: monotonic time at which SIGTERM arrived; None means the current time.
    """
    given = sidecar_settings.from_environment(os.environ)
    began = sidecar_settings.CLOCK.monotonic() if began is None else began
    until = began + max(given.grace_s - LAST_S, given.grace_s / 2)
    path = given.directory / "output"
    try:
        with result_file.OutputFile(path, output_type=given.output_type) as found:
            small = found.payload()
            output = (
                None
                if small is None
                else msgspec.json.encode(termination_message.of_payload(small))
            )
            if output is not None and len(output) <= given.message_bytes:
                return output, 0
            blob = cast(_Blob, importlib.import_module("kilnwork.worker.sidecar_result_blob"))
            payload = blob.store_result(given, found, until=until)
            output = msgspec.json.encode(termination_message.of_payload(payload))
            if len(output) > given.message_bytes:
                raise errors.BadResult(reasons.Reason.RESULT_TOO_LARGE, _NO_ROOM)
            return output, 0
    except errors.BadResult as error:
        bad = termination_message.AttemptOutput(
            reason=error.reason, message=str(error)[:_MESSAGE_LENGTH]
        )
        return _cut(bad, given), 0
    except kit_errors.KilnError as error:
        return _cut(
            termination_message.AttemptOutput(message=str(error)[:_MESSAGE_LENGTH]), given
        ), 1


def _cut(
    output: termination_message.AttemptOutput, given: sidecar_settings.SidecarSettings
) -> bytes:
    """Return the encoded termination message, cut to the permitted length."""
    while True:
        encoded = msgspec.json.encode(output)
        # The length is that of the JSON, in which escapes make a text longer.
        if len(encoded) <= given.message_bytes or not output.message:
            return encoded
        output = msgspec.structs.replace(output, message=output.message[: len(output.message) // 2])
