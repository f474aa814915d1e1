"""What the Pod tells the worker, and what is wrong with it."""

from pathlib import Path

import pytest

from kilnwork.kit import errors, mount_path_resolution
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


def test_all_variables_are_read() -> None:
    found = settings.from_environment(GIVEN)
    assert found.channel == "/run/kiln/channel.sock"
    assert found.token_file == Path(GIVEN["KILN_TOKEN_FILE"])
    assert (found.slots, found.cluster, found.mounts) == (3, "counter", Path("/"))


def test_mounts_may_be_below_another_directory() -> None:
    found = settings.from_environment(
        {**GIVEN, mount_path_resolution.VARIABLE: "/data/pods/1/root"}
    )
    assert found.token_file == Path("/data/pods/1/root" + GIVEN["KILN_TOKEN_FILE"])


@pytest.mark.parametrize(
    "variable", ["KILN_CHANNEL", "KILN_TOKEN_FILE", "KILN_NAMESPACE", "KILN_CLUSTER", "KILN_WORKER"]
)
def test_missing_variable_is_named(variable: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"{variable} is not set"):
        settings.from_environment({**GIVEN, variable: ""})


@pytest.mark.parametrize("slots", ["0", "-1", "many", "", "²", "10001"])
def test_slots_must_be_a_number(slots: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="KILN_SLOTS"):
        settings.from_environment({**GIVEN, "KILN_SLOTS": slots})


def test_unknown_channel_scheme_is_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="unix:/PATH"):
        settings.from_environment({**GIVEN, "KILN_CHANNEL": "tcp:host:7445"})


def test_working_directory_and_python_path_of_slots(tmp_path: Path) -> None:
    found = settings.from_environment(GIVEN)
    assert (found.workdir, found.pythonpath, found.owner) == (None, (), None)
    given = {**GIVEN, "KILN_WORKDIR": str(tmp_path), "KILN_PYTHONPATH": "/a::/b"}
    found = settings.from_environment(given)
    assert (found.workdir, found.pythonpath) == (tmp_path, ("/a", "/b"))


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("KILN_WORKDIR", "/no/such/directory", "which is no directory here"),
        ("KILN_OWNER_FD", "9999", "must be the number of an open descriptor"),
        ("KILN_OWNER_FD", "x", "must be the number of an open descriptor"),
        ("KILN_MEMORY_LIMIT", "1Gi", "must be a number of bytes"),
        ("KILN_MEMORY_LIMIT", "0", "must be a number of bytes"),
        ("KILN_MEMORY_SHARE", "95", "must be 0.1 to 1"),
        ("KILN_MEMORY_SHARE", "nan", "must be 0.1 to 1"),
    ],
)
def test_unusable_value_is_refused_by_name(variable: str, value: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        settings.from_environment({**GIVEN, variable: value})


FAR = {
    **GIVEN,
    "KILN_CHANNEL": "tls://kilnwork.kilnwork-system.svc:7443",
    "KILN_CA_FILE": "/var/run/secrets/kilnwork.dev/channel/ca.crt",
    "TMPDIR": "/tmp",
}


def test_remote_dispatcher() -> None:
    environment = dict(FAR)
    settings.name_directory(environment)
    found = settings.from_environment({**environment, mount_path_resolution.VARIABLE: "/data/root"})
    assert found.remote is not None
    assert (found.remote.host, found.remote.port) == ("kilnwork.kilnwork-system.svc", 7443)
    assert found.remote.ca_file == Path("/data/root" + FAR["KILN_CA_FILE"])
    assert found.remote.directory.parent == Path("/tmp")
    assert found.channel == str(found.remote.directory / "channel")
    assert settings.from_environment(environment).channel == found.channel


def test_relay_sockets_have_short_paths() -> None:
    environment = {**FAR, "TMPDIR": "/very" * 20}
    settings.name_directory(environment)
    assert len(settings.from_environment(environment).channel) < 60


def test_no_relay_directory_for_a_local_dispatcher() -> None:
    environment = dict(GIVEN)
    settings.name_directory(environment)
    assert environment == GIVEN


@pytest.mark.parametrize("channel", ["tls://host", "tls://:7443", "tls://host:port", "host:7443"])
def test_invalid_dispatcher_address_is_refused(channel: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="tls://HOST:PORT"):
        settings.from_environment({**FAR, "KILN_CHANNEL": channel, "KILN_RELAY": "/tmp/x"})


def test_missing_ca_file_is_named() -> None:
    environment = {**FAR, "KILN_CA_FILE": ""}
    settings.name_directory(environment)
    with pytest.raises(errors.ConfigurationError, match="KILN_CA_FILE is not set"):
        settings.from_environment(environment)


def test_memory_limit_and_share() -> None:
    found = settings.from_environment(GIVEN)
    assert (found.memory_limit, found.memory_share) == (None, settings.DEFAULT_MEMORY_SHARE)
    given = {**GIVEN, "KILN_MEMORY_LIMIT": "1048576", "KILN_MEMORY_SHARE": "0"}
    found = settings.from_environment(given)
    assert (found.memory_limit, found.memory_share) == (1048576, 0)
