"""Settings of a Pod's sidecar, from `KILN_…` variables; see `executors.pod.sidecar_container`.

Used by the modules that `sidecar` imports when there is work to do.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kilnwork.kit import clock, mount_path_resolution

CLOCK = clock.SystemClock()


class SidecarSettings(NamedTuple):
    """Settings of a sidecar. Paths are as this process sees them.

    `attempt`: task ID, run and attempt. `channel`, `ca`: address of the dispatcher, as for workers,
    and PEM of its CA. `blobs`: the manager's directory of blobs; None where blobs are sent over the
    network. `grace_s`: seconds between SIGTERM and SIGKILL. `message_bytes`: greatest length of the
    termination message.
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
    """Read the settings from environment variables, which the executor sets.

    Only KILN_CA and KILN_BLOBS may be missing. Raises KeyError or ValueError.
    """
    blobs = environment.get("KILN_BLOBS", "")
    return SidecarSettings(
        directory=mount_path_resolution.locate(Path(environment["KILN_CONTRACT_DIR"]), environment),
        token_file=mount_path_resolution.locate(Path(environment["KILN_TOKEN_FILE"]), environment),
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
