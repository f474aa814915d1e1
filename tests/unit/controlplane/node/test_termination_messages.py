"""The message of a container that ended; what a node makes of it is in integration tests."""

from pathlib import Path

import msgspec
import pytest

from kilnwork.controlplane.node import pod_types, shim_container, termination_messages

SPEC = {"containers": [{"name": "a", "image": "i"}]}


@pytest.mark.parametrize(
    ("reason", "said", "message"),
    [
        (shim_container.UNSEEN, "words", "words"),
        (shim_container.UNSEEN, "", "of the shim"),
        ("StartError", "words", "of the shim"),
    ],
)
def test_message_of_container_with_unseen_end_is_read(
    tmp_path: Path, reason: str, said: str, message: str
) -> None:
    file = tmp_path / "root" / "dev" / "termination-log"
    file.parent.mkdir(parents=True)
    file.write_text(said)
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": SPEC}, pod_types.Pod)
    ended = shim_container.ContainerRecord(
        "u/a/0",
        str(tmp_path),
        exit_code=shim_container.UNKNOWN,
        reason=reason,
        message="of the shim",
    )
    assert termination_messages.with_message(pod, "a", ended).message == message
