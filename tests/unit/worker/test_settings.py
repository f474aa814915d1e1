"""What the Pod tells the worker, and what is wrong with it."""

from pathlib import Path

import pytest

from kilnwork.kit import errors
from kilnwork.worker import settings

GIVEN = {
    "KILN_CHANNEL": "unix:/run/kiln/channel.sock",
    "KILN_TOKEN_FILE": "/var/run/secrets/kilnwork.dev/channel/token",
    "KILN_NAMESPACE": "default",
    "KILN_CLUSTER": "counter",
    "KILN_WORKER": "counter-0",
    "KILN_POD_UID": "uid",
    "KILN_NODE": "node",
    "KILN_SLOTS": "3",
}


def test_everything_is_read() -> None:
    found = settings.from_environment(GIVEN)
    assert found.channel == "/run/kiln/channel.sock"
    assert found.token_file == Path(GIVEN["KILN_TOKEN_FILE"])
    assert (found.slots, found.cluster, found.mounts) == (3, "counter", Path("/"))


def test_mounts_that_are_not_at_their_real_paths() -> None:
    found = settings.from_environment({**GIVEN, settings.MOUNTS: "/data/pods/1/root"})
    assert found.token_file == Path("/data/pods/1/root" + GIVEN["KILN_TOKEN_FILE"])


@pytest.mark.parametrize(
    "variable", ["KILN_CHANNEL", "KILN_TOKEN_FILE", "KILN_NAMESPACE", "KILN_CLUSTER", "KILN_WORKER"]
)
def test_what_is_missing_is_named(variable: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"{variable} is not set"):
        settings.from_environment({**GIVEN, variable: ""})


@pytest.mark.parametrize("slots", ["0", "-1", "many", "", "²", "10001"])
def test_slots_that_are_no_number(slots: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="KILN_SLOTS"):
        settings.from_environment({**GIVEN, "KILN_SLOTS": slots})


def test_a_channel_of_another_kind() -> None:
    with pytest.raises(errors.ConfigurationError, match="unix:/PATH"):
        settings.from_environment({**GIVEN, "KILN_CHANNEL": "tcp:host:7445"})


def test_where_slots_run_and_import(tmp_path: Path) -> None:
    found = settings.from_environment(GIVEN)
    assert (found.workdir, found.pythonpath, found.owner) == (None, (), None)
    given = {**GIVEN, "KILN_WORKDIR": str(tmp_path), "KILN_PYTHONPATH": "/a::/b"}
    found = settings.from_environment(given)
    assert (found.workdir, found.pythonpath) == (tmp_path, ("/a", "/b"))


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("KILN_WORKDIR", "/no/such/folder", "which is no folder here"),
        ("KILN_OWNER_FD", "9999", "must be the number of an open descriptor"),
        ("KILN_OWNER_FD", "x", "must be the number of an open descriptor"),
    ],
)
def test_what_cannot_be_used_says_so(variable: str, value: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        settings.from_environment({**GIVEN, variable: value})
