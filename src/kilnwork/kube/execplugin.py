"""Runs a login program: client.authentication.k8s.io, v1 and v1beta1 (KEP-541).

Used by `credentials`, which caches the result. One run returns one credential; nothing is cached
here. The program gets its input in an environment variable and prints an ExecCredential.
"""

import os
import subprocess
import sys
from dataclasses import dataclass, field

import msgspec

from kilnwork.kit import clock, errors
from kilnwork.kube import config

INFO = "KUBERNETES_EXEC_INFO"
LIMIT_S = 300.0
"""Maximum seconds that a program may run: it may ask the user for a second factor, but a program
that takes longer counts as stuck.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCredential:
    """A credential that a login program has printed.

    `expires_s`: seconds since the epoch; None: valid until the server refuses it.
    """

    token: str | None = field(default=None, repr=False)
    cert: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    expires_s: float | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    expiration_timestamp: str | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Printed(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


def run(plugin: config.ExecPlugin) -> PluginCredential:
    """Run a login program once and return the credential that it prints.

    Raises ConfigurationError with the cause.
    """
    interactive = _interactive(plugin)
    try:
        # Standard error is passed through: login programs write their prompts to it.
        done = subprocess.run(
            [plugin.command, *plugin.args],
            env=_environment(plugin, interactive=interactive),
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        hint = f"\n\n{_plain(plugin.install_hint)}" if plugin.install_hint else ""
        raise _failed(plugin, f"was not found: install it, or correct PATH{hint}") from error
    except OSError as error:
        raise _failed(plugin, f"cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _failed(plugin, f"did not end within {LIMIT_S:.0f} s") from error
    if done.returncode:
        raise _failed(plugin, f"failed with exit code {done.returncode}: see what it printed")
    return _read(plugin, done.stdout)


def _interactive(plugin: config.ExecPlugin) -> bool:
    """Return whether the program may ask the person at the terminal."""
    if plugin.interactive == "Never":
        return False
    # None if this process was started without a descriptor 0.
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not terminal:
        raise _failed(plugin, "must ask a user, and standard input is not a terminal")
    return terminal


def _environment(plugin: config.ExecPlugin, *, interactive: bool) -> dict[str, str]:
    spec: dict[str, object] = {"interactive": interactive}
    if plugin.cluster:
        spec["cluster"] = msgspec.Raw(plugin.cluster)
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    # INFO comes last: the kubeconfig must not replace it.
    return {**os.environ, **dict(plugin.env), INFO: msgspec.json.encode(info).decode()}


def _read(plugin: config.ExecPlugin, printed: bytes) -> PluginCredential:
    """Return the credential in the output of a login program, by client-go's rules.

    Output that cannot be read is not quoted in errors, since it may contain secrets.
    """
    try:
        found = msgspec.json.decode(printed, type=_Printed)
    except msgspec.MsgspecError as error:
        raise _failed(plugin, "did not print an ExecCredential in JSON") from error
    if found.kind != "ExecCredential" or found.api_version != plugin.api_version:
        raise _failed(
            plugin,
            f"is to speak {plugin.api_version} and printed {found.kind or 'no kind'} of "
            f"{found.api_version or 'no apiVersion'}: correct apiVersion in the kubeconfig",
        )
    status = found.status
    if status is None:
        raise _failed(plugin, "printed no status")
    pair = bool(status.client_certificate_data), bool(status.client_key_data)
    if pair[0] != pair[1]:
        raise _failed(plugin, "printed only one half of client certificate and key")
    if not status.token and not pair[0]:
        raise _failed(plugin, "printed neither a token nor a client certificate")
    return PluginCredential(
        token=status.token or None,
        cert=status.client_certificate_data or None,
        key=status.client_key_data or None,
        expires_s=_moment(plugin, status.expiration_timestamp),
    )


def _moment(plugin: config.ExecPlugin, text: str | None) -> float | None:
    try:
        return clock.parse_rfc3339(text) if text else None
    except ValueError as error:
        raise _failed(plugin, f'printed expirationTimestamp "{text}", no RFC 3339 time') from error


def _plain(text: str) -> str:
    """Return the text without terminal escape sequences.

    A kubeconfig may come from any source.
    """
    return "".join(c for c in text if c == "\n" or c.isprintable())


def _failed(plugin: config.ExecPlugin, what: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(f"the program {plugin.command}, which logs in, {what}")
