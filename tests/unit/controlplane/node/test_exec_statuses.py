"""What the error stream of exec and attach says at the end."""

import json

from kilnwork.controlplane.node import exec_statuses


def test_zero_is_a_success() -> None:
    assert exec_statuses.exited(0) == exec_statuses.success()
    assert exec_statuses.encode(exec_statuses.success(), as_json=False) == b""
    sent = exec_statuses.encode(exec_statuses.success(), as_json=True)
    assert json.loads(sent) == {"metadata": {}, "status": "Success"}


def test_another_code_is_a_cause_that_clients_read() -> None:
    status = exec_statuses.exited(3)
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert exec_statuses.encode(status, as_json=False) == (
        b"command terminated with non-zero exit code: command terminated with exit code 3"
    )


def test_a_failure_has_its_text() -> None:
    status = exec_statuses.failed("no such file")
    assert (status["code"], status["reason"]) == (500, "InternalError")
    text = exec_statuses.encode(status, as_json=False)
    assert text == b"Internal error occurred: no such file"
