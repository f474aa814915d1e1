"""Quotas on `/files`: each user's number of incomplete uploads, and total size.

Used by `upload_handlers`. The current state is read from the store once, then updated in memory:
only one server uses a store. An upload counts with its announced length, or with its stored bytes
if they are more.
"""

import threading
from typing import NamedTuple

from kilnwork.server import errors
from kilnwork.server.jobs import input_writer, settings, upload_storage

_SHARE = 75
"""Default quota of one user, as a percentage of the free disk space."""

_REMEDY = "delete some (DELETE /files/ID), or wait until nothing has come for them for a day"


class _Entry(NamedTuple):
    bytes: int
    complete: bool


class Quotas:
    """The upload quotas of all users."""

    def __init__(
        self,
        kept: upload_storage.Uploads,
        chosen: settings.JobsApiSettings,
        room: input_writer.DiskRoom,
    ) -> None:
        self._uploads, self._settings, self._room = kept, chosen, room
        self._lock = threading.Lock()
        self._users: dict[str, dict[str, _Entry]] | None = None

    @property
    def ready(self) -> bool:
        """Whether the uploads in the store have been read."""
        return self._users is not None

    def load(self) -> None:
        """Read the uploads in the store, unless that has been done. Blocks."""
        with self._lock:
            if self._users is None:
                found: dict[str, dict[str, _Entry]] = {}
                for upload in self._uploads.all():
                    _put(found, upload)
                self._users = found

    def forget(self) -> None:
        """Stop counting uploads that were deleted from the store. Blocks.

        All other uploads stay counted meanwhile, so that a user cannot exceed the quota in between.
        """
        with self._lock:
            known = {(user, ref) for user, of in (self._users or {}).items() for ref in of}
        left = {upload.id for upload in self._uploads.all()} if known else set()
        with self._lock:
            for user, ref in known:
                if ref not in left and self._users is not None:
                    self._users[user].pop(ref, None)

    def check_count(self, user: str) -> None:
        """Raise TooManyRequests if the user has too many incomplete uploads to begin another."""
        most = self._settings.files_per_user
        open_ = sum(not entry.complete for entry in self._of(user).values())
        if open_ >= most:
            raise errors.TooManyRequests(
                f"{open_} uploads of yours are not complete, which is the most (--max-files): "
                f"complete or {_REMEDY}",
                headers=((b"retry-after", b"60"),),
            )

    def remaining_bytes(self, user: str, ref: str | None, *, offset: int, size: int) -> int | None:
        """Return how many bytes beyond `offset` the upload `ref` may have, or None if there is no
        limit.

        `ref` is None for a new upload. Raises InsufficientStorage if fewer than `size` bytes are
        allowed.
        """
        others = sum(entry.bytes for name, entry in self._of(user).items() if name != ref)
        most = self._most(others + offset)
        if most is None:
            return None
        left = most - others - offset
        if size > max(left, 0):
            raise errors.InsufficientStorage(
                f"your uploads would have {others + offset + size:,} bytes, and {most:,} are the "
                f"most that one user may have here (--max-files-size): {_REMEDY}"
            )
        return max(left, 0)

    def record_upload(self, upload: upload_storage.StoredUpload) -> None:
        """Record the current state of an upload."""
        with self._lock:
            if self._users is not None:
                _put(self._users, upload)

    def drop_upload(self, upload: upload_storage.StoredUpload) -> None:
        """Record that an upload was deleted."""
        with self._lock:
            if self._users is not None:
                self._users.get(upload.state.user, {}).pop(upload.id, None)

    def _most(self, had: int) -> int | None:
        """Return the maximum total size for a user whose uploads now have `had` bytes, or None if
        there is no limit.
        """
        if self._settings.files_bytes_per_user is not None:
            return self._settings.files_bytes_per_user
        free = self._room.free()
        return None if free is None else (had + max(free, 0)) * _SHARE // 100

    def _of(self, user: str) -> dict[str, _Entry]:
        with self._lock:
            return dict((self._users or {}).get(user, {}))


def _put(users: dict[str, dict[str, _Entry]], upload: upload_storage.StoredUpload) -> None:
    state = upload.state
    entry = _Entry(max(upload.offset, state.length or 0), state.complete)
    users.setdefault(state.user, {})[upload.id] = entry
