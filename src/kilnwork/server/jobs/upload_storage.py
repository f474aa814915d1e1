"""Storage of the uploads to `/files`: bytes and state of each upload.

Used by `upload_handlers`, which handles requests, and by `upload_quotas`; all methods block. An
upload is `_uploads/NAMESPACE/ID/` in the store, with `state.json` and its bytes below `data`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kilnwork.data import errors as data_errors
from kilnwork.data.stores import port, resumable_uploads
from kilnwork.server import errors

DIRECTORY = "_uploads"
"""Directory in the store, next to the namespaces, none of which begins with an underscore."""

KEEP_S = 24 * 3600

_STATE = "state.json"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class UploadState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Content of an upload's `state.json`. `created`: wall clock seconds. `user`: owner of the
    upload.
    """

    created: float
    user: str = ""
    length: int | None = None
    complete: bool = False


class StoredUpload(NamedTuple):
    """A stored upload.

    `touched`: when it was created, or its last bytes arrived; wall clock seconds. `etag`: entity
    tag of its stored state, "" before that is stored.
    """

    id: str
    namespace: str
    state: UploadState
    bytes: resumable_uploads.ResumableUpload
    offset: int
    touched: float
    etag: str = ""

    @property
    def whole(self) -> bool:
        """Whether all bytes of the upload have arrived and are stored."""
        return self.state.complete and self.offset == self.state.length

    @property
    def directory(self) -> str:
        """Directory of the upload in the store."""
        return _directory(self.namespace, self.id)


class Uploads:
    """The uploads of all namespaces in a store."""

    def __init__(self, store: port.Store) -> None:
        self._store = store

    def begin(self, namespace: str, name: str, state: UploadState) -> StoredUpload:
        """Create an empty upload."""
        return self.save(self._upload(namespace, name, state), state)

    def find(self, namespace: str, ref: str) -> StoredUpload | None:
        """Return the upload with this id, or None. Any text is allowed as `ref`."""
        if not _ID.fullmatch(ref):
            return None
        try:
            with self._store.read(f"{_directory(namespace, ref)}/{_STATE}") as reading:
                state = msgspec.json.decode(b"".join(reading), type=UploadState)
        except (data_errors.ObjectMissing, msgspec.MsgspecError):
            return None
        upload = self._upload(namespace, ref, state)
        return upload._replace(
            offset=upload.bytes.size(),
            touched=max(state.created, upload.bytes.modified()),
            etag=reading.facts.etag,
        )

    def list(self, namespace: str) -> Iterator[StoredUpload]:
        """Yield the uploads of a namespace, in the order of their ids."""
        for name in list(self._store.directories(f"{DIRECTORY}/{namespace}/")):
            found = self.find(namespace, name)
            if found is not None:
                yield found

    def all(self) -> Iterator[StoredUpload]:
        """Yield the uploads of all namespaces."""
        for namespace in list(self._store.directories(f"{DIRECTORY}/")):
            yield from self.list(namespace)

    def save(self, upload: StoredUpload, state: UploadState) -> StoredUpload:
        """Store a new state of an upload. Raises Conflict or NotFound if another client has changed
        or deleted it meanwhile."""
        try:
            facts = self._store.put(
                f"{upload.directory}/{_STATE}",
                msgspec.json.encode(state),
                create=not upload.etag,
                if_match=upload.etag or None,
            )
        except data_errors.ObjectChanged as error:
            if self.find(upload.namespace, upload.id) is not None:
                raise errors.Conflict(
                    f"another client goes on with file {upload.id}: HEAD tells how far it is"
                ) from error
            self.remove(upload)
            raise missing_upload_error(upload.id, upload.namespace) from error
        return upload._replace(state=state, etag=facts.etag)

    def remove(self, upload: StoredUpload) -> None:
        """Delete an upload. A job that uses it keeps its own copy or link."""
        port.clear(self._store, upload.directory + "/")

    def delete_stale(self, *, before: float) -> int:
        """Delete uploads that received nothing since `before` (wall clock seconds), and unreadable
        uploads; return the number of deleted uploads.
        """
        count = 0
        for namespace in list(self._store.directories(f"{DIRECTORY}/")):
            for name in list(self._store.directories(f"{DIRECTORY}/{namespace}/")):
                upload = self.find(namespace, name)
                if upload is None or upload.touched < before:
                    port.clear(self._store, _directory(namespace, name) + "/")
                    count += 1
        return count

    def _upload(self, namespace: str, name: str, state: UploadState) -> StoredUpload:
        place = f"{_directory(namespace, name)}/data"
        return StoredUpload(
            name,
            namespace,
            state,
            resumable_uploads.open_upload(self._store, place),
            0,
            state.created,
        )


def missing_upload_error(ref: str, namespace: str) -> errors.NotFound:
    """Return the error for an upload that does not exist."""
    return errors.NotFound(
        f'there is no file "{ref[:100]}" in namespace "{namespace}": it was never begun, was '
        "deleted, or nothing came for it for a day"
    )


def incomplete_upload_error(upload: StoredUpload) -> errors.Conflict:
    """Return the error for an upload that is marked as complete but lacks bytes."""
    return errors.Conflict(
        f"file {upload.id} lacks some of its {upload.state.length or 0:,} bytes: it is being "
        "deleted, or was changed in the store. Upload it again"
    )


def _directory(namespace: str, name: str) -> str:
    return f"{DIRECTORY}/{namespace}/{name}"
