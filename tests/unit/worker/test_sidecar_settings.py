"""What the sidecar of a Pod reads from its environment."""

from pathlib import Path

import pytest

from kilnwork.worker import sidecar_settings

ENVIRONMENT = {
    "KILN_CONTRACT_DIR": "/var/run/kilnwork",
    "KILN_TOKEN_FILE": "/var/run/secrets/token",
    "KILN_TASK_ID": "018f3a5e-0000-7000-8000-000000000001",
    "KILN_RUN": "2",
    "KILN_ATTEMPT": "3",
    "KILN_NAMESPACE": "ns",
    "KILN_POD": "p",
    "KILN_CLUSTER": "c",
    "KILN_OUTPUT_TYPE": "json",
    "KILN_CHANNEL": "tls://h:7445",
    "KILN_GRACE_SECONDS": "1.5",
    "KILN_MESSAGE_BYTES": "2048",
}


def test_all_variables_are_read() -> None:
    made = sidecar_settings.from_environment({**ENVIRONMENT, "KILN_CA": "PEM", "KILN_BLOBS": "/b"})
    assert made == sidecar_settings.SidecarSettings(
        directory=Path("/var/run/kilnwork"),
        token_file=Path("/var/run/secrets/token"),
        attempt=("018f3a5e-0000-7000-8000-000000000001", 2, 3),
        namespace="ns",
        pod="p",
        cluster="c",
        output_type="json",
        channel="tls://h:7445",
        ca="PEM",
        blobs=Path("/b"),
        grace_s=1.5,
        message_bytes=2048,
    )


def test_without_shared_directory_blobs_are_sent_over_the_network() -> None:
    made = sidecar_settings.from_environment({**ENVIRONMENT, "KILN_BLOBS": ""})
    assert (made.blobs, made.ca) == (None, "")


def test_paths_are_below_the_mounts_on_the_local_node() -> None:
    mounted = {**ENVIRONMENT, "CONTAINER_SANDBOX_MOUNT_POINT": "/data/pod"}
    made = sidecar_settings.from_environment(mounted)
    assert made.directory == Path("/data/pod/var/run/kilnwork")
    assert made.token_file == Path("/data/pod/var/run/secrets/token")


@pytest.mark.parametrize("missing", sorted(ENVIRONMENT))
def test_missing_variable_is_named(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        sidecar_settings.from_environment({k: v for k, v in ENVIRONMENT.items() if k != missing})
