"""The current credential for an API server: tokens, client certificates, login programs, headers.

Used by `transport`, and by blocking clients. Its functions block while they read a small file or
run a plugin, and may be called from any thread. A credential is cached until it changes or expires;
after a 401, call `renew`.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kilnwork.kit import clock, errors
from kilnwork.kube import config, execplugin

log = logging.getLogger(__name__)

FILE_AGE_S = 60.0
"""Seconds for which a file's content is used before it is read again; kubelets rotate tokens
hourly.
"""

_TOKEN_CHARACTERS = frozenset(range(0x21, 0x7F))
"""Bytes that a token may contain: tokens of some systems have more than RFC 6750 allows (Rancher's
have a colon), but none has a space.
"""
_HEADER_CHARACTERS = frozenset(
    b"!#$&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)
"""Bytes that a header's name may contain (RFC 9110 §5.6.2), without the percent sign, which escapes
the others.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A bearer token, a client certificate with its key (PEM), both, or neither."""

    token: str | None = field(default=None, repr=False)
    cert: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)


class Credentials:
    """The credential of one `config.Config`, renewed when it changes or expires."""

    def __init__(self, settings: config.Config, *, time: clock.Clock | None = None) -> None:
        self._settings = settings
        self._clock = time or clock.SystemClock()
        self._lock = threading.Lock()
        self._current: Credential | None = None
        self._fresh_until: float | None = None
        self._files = tuple(
            path
            for path in (settings.token_file, settings.client_cert_file, settings.client_key_file)
            if path is not None
        )
        own = settings.token or settings.client_cert or self._files
        self._plugin = None if own or settings.exec is None else settings.exec

    def get_nowait(self) -> Credential | None:
        """Return the current credential, or None if a login program must run first, or is running.

        It may be called on an event loop. Raises ConfigurationError as `get` does.
        """
        if not self._lock.acquire(blocking=self._plugin is None):
            return None
        try:
            return self._usable() or (self._make() if self._plugin is None else None)
        finally:
            self._lock.release()

    def get(self) -> Credential:
        """Return the current credential.

        Raises ConfigurationError if there is no way to get one.
        """
        # Hold the lock while a plugin runs: two threads must not ask the user to log in twice.
        with self._lock:
            return self._usable() or self._make()

    def renew(self, refused: Credential) -> Credential:
        """Return a credential to use instead of a refused one.

        If there is no other, the refused credential is returned.
        """
        with self._lock:
            known = self._current
            if known is not None and known != refused:
                return known  # another thread has renewed it already
            if not self._files and self._plugin is None:
                return refused
            return self._make()

    def _usable(self) -> Credential | None:
        if self._fresh_until is not None and self._now() >= self._fresh_until:
            return None
        return self._current

    def _now(self) -> float:
        """Return the current time of the clock in which the credential's expiry is given.

        That is monotonic time for files, and time of day for plugins.
        """
        return self._clock.wall() if self._plugin else self._clock.monotonic()

    def _make(self) -> Credential:
        if self._plugin is not None:
            found = execplugin.run(self._plugin)
            self._fresh_until = found.expires_s
            self._current = Credential(token=found.token, cert=found.cert, key=found.key)
        else:
            self._current = self._read()
            self._fresh_until = self._now() + FILE_AGE_S if self._files else None
        return self._current

    def _read(self) -> Credential:
        """Return the credential in the configuration and its files.

        A token file overrides a configured token; a configured certificate or key overrides its
        file. If a file cannot be read, the last credential is kept. Raises ConfigurationError if
        there is none.
        """
        settings, before = self._settings, self._current
        try:
            cert, key = settings.client_cert, settings.client_key
            return Credential(
                # Files often end with a newline, which no header may contain.
                token=_content(settings.token_file, str.strip) or settings.token,
                cert=cert or _content(settings.client_cert_file),
                key=key or _content(settings.client_key_file),
            )
        except (OSError, UnicodeDecodeError) as error:
            # There is no earlier credential to use; once there is one, it is kept if a file cannot
            # be read.
            if before is None and settings.token is None:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                name = getattr(error, "filename", None) or "one of the files"
                raise errors.ConfigurationError(
                    f"cannot read {name}, which the kubeconfig or Pod names as a credential: "
                    f"{reason}"
                ) from error
            log.warning("credential file is unreadable", extra={"error": str(error)})
            return before or Credential(token=settings.token)


def _content(path: Path | None, clean: Callable[[str], str] = str) -> str | None:
    return None if path is None else clean(path.read_text())


def headers(settings: config.Config, credential: Credential) -> list[tuple[str, str]]:
    """Return the headers for authorization and impersonation; names may repeat.

    Raises ConfigurationError for a token that no header can contain.
    """
    shown: list[tuple[str, str]] = []
    if credential.token:
        if not _TOKEN_CHARACTERS.issuperset(credential.token.encode()):
            raise errors.ConfigurationError(
                f"the token for {settings.server} has characters that no token may have: is it "
                "one text on one line?"
            )
        shown.append(("Authorization", f"Bearer {credential.token}"))
    if settings.impersonate is not None:
        shown += _acting_as(settings.impersonate)
    return shown


def _acting_as(who: config.Impersonation) -> list[tuple[str, str]]:
    shown = [("Impersonate-User", who.user)]
    if who.uid:
        shown.append(("Impersonate-Uid", who.uid))
    shown += [("Impersonate-Group", group) for group in who.groups]
    for key, values in who.extra:
        shown += [(f"Impersonate-Extra-{_header_name(key)}", value) for value in values]
    return shown


def _header_name(text: str) -> str:
    """Return the text percent-encoded as client-go does it, for the name of a header.

    Keys of `extra` are often URLs.
    """
    return "".join(
        chr(byte) if byte in _HEADER_CHARACTERS else f"%{byte:02X}" for byte in text.encode()
    )
