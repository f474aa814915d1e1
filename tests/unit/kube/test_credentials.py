"""What is shown to a server: tokens and certificates from files, programs that log in, headers."""

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest

from kilnwork.api import api_resources
from kilnwork.kit import clock
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client, config, credentials, errors, execplugin
from support import scripted_apiserver

V1, V1BETA1 = config.EXEC_VERSIONS

_PLUGIN = """#!{python}
import json, os, pathlib, sys
directory = pathlib.Path(__file__).parent
runs = directory / "runs"
count = int(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text(str(count))
(directory / "info").write_text(os.environ["KUBERNETES_EXEC_INFO"])
said = [sys.argv[1:], os.environ.get("LOGIN"), sys.stdin.read()]
(directory / "said").write_text(json.dumps(said))
print((directory / "output").read_text().replace("COUNT", str(count)))
sys.exit(int((directory / "code").read_text()) if (directory / "code").exists() else 0)
"""


class Plugin:
    """A program that prints what a test wants, and counts its runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "log-in"
        self.program.write_text(_PLUGIN.format(python=sys.executable))
        self.program.chmod(0o700)

    def config(self, **more: Any) -> config.ExecPlugin:
        facts: dict[str, Any] = {"command": str(self.program), "api_version": V1, **more}
        return config.ExecPlugin(**facts)

    def prints(self, *, version: str = V1, kind: str = "ExecCredential", **status: Any) -> None:
        """What comes next; COUNT in a text becomes the number of the run."""
        document: dict[str, Any] = {"apiVersion": version, "kind": kind}
        if status:
            document["status"] = status
        (self.directory / "output").write_text(json.dumps(document))

    @property
    def runs(self) -> int:
        file = self.directory / "runs"
        return int(file.read_text()) if file.exists() else 0


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def _held(plugin: Plugin, time: clock.Clock | None = None, **more: Any) -> credentials.Credentials:
    settings = config.Config(server="https://h", exec=plugin.config(**more))
    return credentials.Credentials(settings, time=time)


def test_plugin_gets_its_input_in_the_environment(plugin: Plugin) -> None:
    plugin.prints(token="t")
    held = _held(plugin, args=("a", "b"), env=(("LOGIN", "me"),), cluster=b'{"server":"https://h"}')
    assert held.get_nowait() is None
    assert held.get() == credentials.Credential(token="t")
    assert held.get_nowait() == credentials.Credential(token="t")
    assert json.loads((plugin.directory / "said").read_text()) == [["a", "b"], "me", ""]
    assert json.loads((plugin.directory / "info").read_text()) == {
        "kind": "ExecCredential",
        "apiVersion": V1,
        "spec": {"interactive": False, "cluster": {"server": "https://h"}},
    }


def test_plugin_runs_again_when_its_credential_expires(plugin: Plugin) -> None:
    time = clock.ManualClock()
    plugin.prints(token="t-COUNT", expirationTimestamp=clock.rfc3339(time.wall() + 60))
    held = _held(plugin, time)
    assert held.get().token == "t-1"
    time.advance(59)
    assert held.get().token == "t-1"
    time.advance(1)
    assert held.get_nowait() is None
    assert held.get().token == "t-2"


def test_credential_without_expiry_is_kept_until_refused(plugin: Plugin) -> None:
    time = clock.ManualClock()
    plugin.prints(token="t-COUNT")
    held = _held(plugin, time)
    first = held.get()
    time.advance(1e6)
    assert held.get() == first
    second = held.renew(first)
    assert second.token == "t-2"
    assert held.renew(first) == second  # another caller was refused with the old one too
    assert plugin.runs == 2


def test_a_plugin_may_give_a_certificate(plugin: Plugin) -> None:
    plugin.prints(clientCertificateData="CERT", clientKeyData="KEY", version=V1BETA1)
    held = _held(plugin, api_version=V1BETA1)
    assert held.get() == credentials.Credential(cert="CERT", key="KEY")
    assert "KEY" not in repr(held.get())


def test_other_credentials_come_before_a_plugin(plugin: Plugin) -> None:
    settings = config.Config(server="https://h", token="own", exec=plugin.config())
    held = credentials.Credentials(settings)
    assert held.get_nowait() == credentials.Credential(token="own")
    assert plugin.runs == 0


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"kind": "Credential", "token": "t"}, "printed Credential of client"),
        ({"version": V1BETA1, "token": "t"}, f"is to speak {V1} and printed .*{V1BETA1}"),
        ({}, "printed no status"),
        ({"expirationTimestamp": "2026-01-01T00:00:00Z"}, "neither a token nor a client"),
        ({"clientKeyData": "k", "token": "t"}, "only one half"),
        ({"token": "t", "expirationTimestamp": "soon"}, "no RFC 3339 time"),
    ],
)
def test_invalid_plugin_output_is_named_in_the_error(
    plugin: Plugin, document: dict[str, Any], text: str
) -> None:
    plugin.prints(**document)
    with pytest.raises(kit_errors.ConfigurationError, match=text):
        _held(plugin).get()


def test_a_plugin_that_fails_is_named(plugin: Plugin) -> None:
    plugin.prints(token="t")
    (plugin.directory / "code").write_text("3")
    with pytest.raises(kit_errors.ConfigurationError, match=r"log-in, which .* exit code 3"):
        _held(plugin).get()
    (plugin.directory / "code").unlink()
    (plugin.directory / "output").write_text("hello s3cret")
    with pytest.raises(kit_errors.ConfigurationError, match="did not print") as caught:
        _held(plugin).get()
    assert "s3cret" not in str(caught.value)


def test_missing_plugin_error_has_the_install_hint(plugin: Plugin) -> None:
    absent = plugin.config(command="surely-not-there", install_hint="get it\x1b[31m from X")
    with pytest.raises(kit_errors.ConfigurationError, match=r"(?s)not found.*get it\[31m from X"):
        execplugin.run(absent)
    plugin.program.chmod(0o600)
    with pytest.raises(kit_errors.ConfigurationError, match="cannot be run"):
        execplugin.run(plugin.config())


def test_a_plugin_that_must_ask_needs_a_terminal(plugin: Plugin) -> None:
    with pytest.raises(kit_errors.ConfigurationError, match="is not a terminal"):
        execplugin.run(plugin.config(interactive="Always"))
    assert plugin.runs == 0


async def test_a_refused_token_is_renewed_once(
    plugin: Plugin, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    plugin.prints(token="t-COUNT")

    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        good = request.headers["Authorization"] == "Bearer t-2"
        return aiohttp.web.json_response({}, status=200 if good else 401)

    stand.handler = handler
    settings = config.Config(server=stand.url, exec=plugin.config())
    async with client.Client(settings) as kube:
        await kube.get(api_resources.PODS, "a", "x")
        assert [h["Authorization"] for h in stand.headers] == ["Bearer t-1", "Bearer t-2"]
        stand.respond({}, status=401)
        with pytest.raises(errors.Unauthorized):
            await kube.get(api_resources.PODS, "a", "x")
        assert len(stand.asked) == 4
        assert plugin.runs == 3


async def test_requests_meanwhile_do_not_block_the_loop_for_a_login(
    plugin: Plugin, stand: scripted_apiserver.ScriptedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def log_in(_: config.ExecPlugin) -> execplugin.PluginCredential:
        if stand.asked:
            began.set()
            in_time.append(may_end.wait(5))
        return execplugin.PluginCredential(token="new" if stand.asked else "old")

    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        good = request.headers["Authorization"] == "Bearer new"
        return aiohttp.web.json_response({}, status=200 if good else 401)

    stand.handler = handler
    monkeypatch.setattr(execplugin, "run", log_in)
    settings = config.Config(server=stand.url, exec=plugin.config())
    async with client.Client(settings) as kube:
        first = asyncio.ensure_future(kube.get(api_resources.PODS, "a", "x"))
        while not began.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(kube.get(api_resources.PODS, "b", "x"))
        await asyncio.sleep(0.001)  # the loop goes on while the program runs
        may_end.set()
        await asyncio.gather(first, second)
    assert in_time == [True]
    assert [h["Authorization"] for h in stand.headers] == ["Bearer old", *2 * ["Bearer new"]]


def test_files_are_read_again_as_they_grow_old(tmp_path: Path) -> None:
    time = clock.ManualClock()
    for name in ("token", "cert", "key"):
        (tmp_path / name).write_text(f"{name}-1\n")
    settings = config.Config(
        server="https://h",
        token="first",
        token_file=tmp_path / "token",
        client_cert_file=tmp_path / "cert",
        client_key_file=tmp_path / "key",
    )
    held = credentials.Credentials(settings, time=time)
    first = credentials.Credential(token="token-1", cert="cert-1\n", key="key-1\n")
    assert held.get() == first
    for name in ("token", "cert", "key"):
        (tmp_path / name).write_text(f"{name}-2\n")
    time.advance(credentials.FILE_AGE_S - 1)
    assert held.get() == first
    assert held.renew(first).token == "token-2"
    (tmp_path / "cert").unlink()
    time.advance(credentials.FILE_AGE_S)
    assert held.get() == credentials.Credential(token="token-2", cert="cert-2\n", key="key-2\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    settings = config.Config(server="https://h", token_file=tmp_path / "token")
    with pytest.raises(kit_errors.ConfigurationError, match=r"token, which .* names"):
        credentials.Credentials(settings).get()


def test_headers_of_impersonation() -> None:
    who = config.Impersonation(
        user="jane", uid="7", groups=("a", "b"), extra=(("example.org/ß%", ("x", "y")),)
    )
    settings = config.Config(server="https://h", impersonate=who)
    assert credentials.headers(settings, credentials.Credential(token="t")) == [
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.org%2F%C3%9F%25", "x"),
        ("Impersonate-Extra-example.org%2F%C3%9F%25", "y"),
    ]


@pytest.mark.parametrize("token", ["a b", "a\nX-Other: 1", "tök"])
def test_invalid_token_never_reaches_a_header(token: str) -> None:
    settings = config.Config(server="https://h")
    with pytest.raises(kit_errors.ConfigurationError, match="one text on one line"):
        credentials.headers(settings, credentials.Credential(token=token))
