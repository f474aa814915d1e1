"""The Status at the end of exec and attach, as JSON and as the text of older versions."""

import json

from kilnwork.controlplane.node import exec_statuses


def test_exit_code_0_is_a_success() -> None:
    assert exec_statuses.exited(0) == exec_statuses.success()
    assert exec_statuses.success()["status"] == "Success"


def test_nonzero_exit_code_is_in_the_causes() -> None:
    status = exec_statuses.exited(3)
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert status["details"] == {"causes": [{"reason": "ExitCode", "message": "3"}]}
    assert status["message"].endswith("command terminated with exit code 3")


def test_command_that_cannot_run_is_an_internal_error() -> None:
    status = exec_statuses.failed("no such file")
    assert (status["reason"], status["code"]) == ("InternalError", 500)
    assert status["message"] == "Internal error occurred: no such file"


def test_version_4_streams_get_json() -> None:
    raw = exec_statuses.encode(exec_statuses.exited(1), as_json=True)
    assert json.loads(raw) == exec_statuses.exited(1)


def test_older_streams_get_text_only_for_failures() -> None:
    assert exec_statuses.encode(exec_statuses.success(), as_json=False) == b""
    failed = exec_statuses.encode(exec_statuses.failed("x"), as_json=False)
    assert failed == b"Internal error occurred: x"
