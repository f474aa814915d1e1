"""What the process of a call in a Pod reads from its environment."""

from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.kit import ids
from kilnwork.worker import pod_call

TASK = ids.task_id("018f3a5e-0000-7000-8000-000000000001")
ENVIRONMENT = {
    "KILN_TOKEN_FILE": "/var/run/secrets/token",
    "KILN_TASK_ID": ids.task_text(TASK),
    "KILN_RUN": "2",
    "KILN_ATTEMPT": "3",
    "KILN_NAMESPACE": "ns",
    "KILN_POD": "p",
    "KILN_CHANNEL": "unix:/run/channel",
}


def test_settings_name_the_attempt_and_the_dispatcher() -> None:
    made = pod_call.from_environment(ENVIRONMENT)
    assert made.ref == attempts.AttemptRef(TASK, 2, 3)
    assert (made.token_file, made.channel) == (Path("/var/run/secrets/token"), "unix:/run/channel")
    assert (made.namespace, made.pod, made.ca) == ("ns", "p", "")


@pytest.mark.parametrize(("given", "shares"), [({}, False), ({"KILN_BLOBS": "/b"}, True)])
def test_settings_may_name_a_shared_blob_directory(given: dict[str, str], *, shares: bool) -> None:
    assert pod_call.from_environment({**ENVIRONMENT, **given}).shares_blobs is shares


def test_token_is_below_the_mounts_on_the_local_node() -> None:
    mounted = {**ENVIRONMENT, "CONTAINER_SANDBOX_MOUNT_POINT": "/data/pod"}
    found = pod_call.from_environment(mounted).token_file
    assert found == Path("/data/pod/var/run/secrets/token")


@pytest.mark.parametrize("missing", sorted(ENVIRONMENT))
def test_missing_variable_is_named(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        pod_call.from_environment({k: v for k, v in ENVIRONMENT.items() if k != missing})


def test_exit_codes_are_distinct() -> None:
    codes = (pod_call.RETURNED, pod_call.RAISED, pod_call.REFUSED, pod_call.STOPPED)
    assert codes == (0, 1, 70, 143)
