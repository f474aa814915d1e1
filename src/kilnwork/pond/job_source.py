"""Sources for the files of file jobs, which are read from the manager.

Used by `fetcher` for `kiln:` addresses. The agent sends the pond's token, as it does for orders, so
it can read file jobs of the pond's namespace only. The manager knows the digest of each file, which
is its entity tag: files that have been read are not read again.
"""

import ssl
from collections.abc import Sequence
from typing import Any
from urllib import parse

import msgspec

from kilnwork.api import file_job_uris, manager_access, pond_messages
from kilnwork.data import errors
from kilnwork.data.pond import globs, manifest, origins
from kilnwork.kit import http1_client
from kilnwork.pond import connections, http_source, settings

_WAITING = 409
"""Status of the manager's response while the job has not ended."""

_MAX_LIST_BYTES = 16 << 20
_decode = msgspec.json.Decoder(pond_messages.FileList).decode


class FileJobSource(http_source.HttpSource):
    """A source with the files in one directory of a file job."""

    def __init__(
        self, name: str, directory: file_job_uris.JobDirectory, given: settings.AgentSettings
    ) -> None:
        place = (given.namespace, given.pond, "jobs", directory.job, directory.directory)
        path = "/".join(parse.quote(part, safe="") for part in place)
        tls_name = manager_access.SERVER_NAME if given.manager.startswith("https:") else ""
        super().__init__(
            name,
            f"{given.manager}{pond_messages.PREFIX}/{path}/",
            allow=None,
            tls_name=tls_name,
        )
        self._given = given
        self._directory = directory

    def list(self, selection: origins.Selection) -> Sequence[origins.ListedFile]:
        """Return the selected files; one request to the manager lists them."""
        with self._send("", "GET", {}) as exchange:
            self._check(self._directory.uri, exchange)
            files = self._files(exchange)
        known = {one.path: one for one in files}
        for path in selection.paths:
            if path not in known:
                raise errors.SourceMissing(f"{self._directory.uri} has no file {path!r}")
        found = [
            origins.ListedFile(one.path, one.size, manifest.PLAIN, f'etag:"{one.digest}"')
            for one in files
            if (one.path in selection.paths or not selection.paths)
            and (not selection.glob or globs.matches(selection.glob, one.path))
        ]
        if not found:
            which = f" that fits {selection.glob!r}" if selection.glob else ""
            raise errors.SourceMissing(f"{self._directory.uri} has no file{which}")
        return sorted(found)

    def _files(self, exchange: connections.Exchange) -> tuple[pond_messages.ListedFile, ...]:
        try:
            return _decode(_body(exchange)).files
        except msgspec.MsgspecError as error:
            raise errors.SourceUnreachable(f"the manager sent no list of files: {error}") from error

    def _check(self, path: str, exchange: connections.Exchange) -> None:
        status = exchange.head.status
        if status in (200, 206):
            return
        detail = f"{self._directory.uri}: {_detail(exchange)} ({status})"
        if status in http_source.GONE:
            raise errors.SourceMissing(detail)
        raise errors.SourceUnreachable(
            detail if status == _WAITING else f"the manager does not send {path}: {detail}"
        )

    def _address(self, path: str) -> http_source.Address:
        """Return the address of a file. With path "", return the address for listing all files,
        which is the directory without its last slash.
        """
        found = super()._address(path)
        return found if path else found._replace(target=found.target.rstrip("/"))

    def _secret(self, key: str) -> str:
        file = {"token": self._given.token_file, "ca.crt": self._given.ca_file}.get(key)
        try:
            return "" if file is None else file.read_text().strip()
        except OSError:
            return ""

    def _new_context(self, own: str) -> ssl.SSLContext:
        """Return a context that trusts only the manager's own authority.

        Raises SourceUnreachable without a usable CA: the file may come later.
        """
        try:
            if not own:  # Python would trust the system's authorities instead
                raise ValueError("it is missing or empty")
            return ssl.create_default_context(cadata=own)
        except (ValueError, ssl.SSLError) as error:
            raise errors.SourceUnreachable(
                f"the manager's CA in KILN_CA_FILE cannot be used: {error}"
            ) from error


def _body(exchange: connections.Exchange) -> bytes:
    found = bytearray()
    for piece in exchange.connection.pieces():
        found += piece
        if len(found) > _MAX_LIST_BYTES:
            raise errors.SourceRefused("the manager sent a list of files without an end")
    return bytes(found)


def _detail(exchange: connections.Exchange) -> str:
    try:
        problem: Any = msgspec.json.decode(_body(exchange))
        return str(problem["detail"])
    except (msgspec.MsgspecError, KeyError, TypeError, OSError, http1_client.BadResponse):
        return exchange.head.reason
