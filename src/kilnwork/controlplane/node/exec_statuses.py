"""Final messages on the error stream of exec and attach.

No I/O. From version 4 of the protocol on, the message is a JSON Status. In older versions it is
plain text, and is sent only for failures (k8s.io/kubelet pkg/cri/streaming/remotecommand; client-go
tools/remotecommand reads it).
"""

import json
from typing import Any

from kilnwork.api import meta


def success() -> meta.JsonObject:
    """Return the Status for exit code 0, or for an attach that has ended."""
    return {"metadata": {}, "status": "Success"}


def exited(code: int) -> meta.JsonObject:
    """Return the Status for an exit code; 0 is a success."""
    if code == 0:
        return success()
    text = f"command terminated with exit code {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {text}",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }


def failed(text: str) -> meta.JsonObject:
    """Return the Status for a command that could not be run or whose end is unknown."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {text}",
        "reason": "InternalError",
        "details": {"causes": [{"message": text}]},
        "code": 500,
    }


def encode(status: dict[str, Any], *, as_json: bool) -> bytes:
    """Return the final message as bytes for the error stream.

    With `as_json` the message is the whole Status. Otherwise it is the error text, or b"" after a
    success.
    """
    if as_json:
        return json.dumps(status, separators=(",", ":")).encode()
    return b"" if status["status"] == "Success" else str(status["message"]).encode()
