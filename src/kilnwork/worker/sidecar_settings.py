"""What the Pod tells its sidecar by `KILN_…`; see `executors.pod.sidecar`.

Used by what `sidecar` imports when there is something to be done.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kilnwork.kit import clock, container_mounts

CLOCK = clock.SystemClock()


class SidecarSettings(NamedTuple):
    """Paths are where they are to be found. `attempt`: ID, run and attempt. `channel`, `ca`: the
    dispatcher, as for workers, and the PEM of its CA. `blobs`: directory of the manager's blobs,
    None where they go over the network. `grace_s`: between SIGTERM and SIGKILL. `message_bytes`:
    how long the termination message may be.
    """

    directory: Path
    token_file: Path
    attempt: tuple[str, int, int]
    namespace: str
    pod: str
    cluster: str
    output_type: str
    channel: str
    ca: str
    blobs: Path | None
    grace_s: float
    message_bytes: int


def from_environment(environment: Mapping[str, str]) -> SidecarSettings:
    """Raises KeyError, ValueError: the executor sets all of it."""
    blobs = environment.get("KILN_BLOBS", "")
    return SidecarSettings(
        directory=container_mounts.locate(Path(environment["KILN_CONTRACT_DIR"]), environment),
        token_file=container_mounts.locate(Path(environment["KILN_TOKEN_FILE"]), environment),
        attempt=(
            environment["KILN_TASK_ID"],
            int(environment["KILN_RUN"]),
            int(environment["KILN_ATTEMPT"]),
        ),
        namespace=environment["KILN_NAMESPACE"],
        pod=environment["KILN_POD"],
        cluster=environment["KILN_CLUSTER"],
        output_type=environment["KILN_OUTPUT_TYPE"],
        channel=environment["KILN_CHANNEL"],
        ca=environment.get("KILN_CA", ""),
        blobs=Path(blobs) if blobs else None,
        grace_s=float(environment["KILN_GRACE_SECONDS"]),
        message_bytes=int(environment["KILN_MESSAGE_BYTES"]),
    )
