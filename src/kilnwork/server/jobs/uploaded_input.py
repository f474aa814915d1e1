"""Referenced input: an upload that becomes a job's input without being copied.

Used by `upload_handlers` and `submit`. The upload is indexed in place, and hard-linked into the
job's directory. No second copy is made; if either name is deleted, the other stays valid.
"""

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data.records import in_place_indexing, lines, unsupported_formats
from kilnwork.data.stores import local_resumable
from kilnwork.server import errors
from kilnwork.server.jobs import upload_storage


class ReferencedInput:
    """Input of a job that is an existing upload; used in place of an `input_writer.JobInput`.

    `kept`: the stored bytes of the upload. `place`: key of the input; if it is None, the upload is
    only indexed.
    """

    small = False
    stored = True

    def __init__(
        self,
        upload: upload_storage.StoredUpload,
        kept: local_resumable.LocalResumableUpload,
        *,
        spec: filejobs.FileJobSpec,
        manifest: filejobs.Manifest,
        place: str | None,
    ) -> None:
        self.spec = spec
        self._upload, self._kept, self._manifest, self._place = upload, kept, manifest, place

    def finish(self) -> tuple[filejobs.Manifest, bytes | None]:
        """Link the upload as the job's input, or copy it if the file system has no hard links;
        returns the same as `JobInput.finish`.

        Raises BadRequest, `StoreError`.
        """
        if not self._manifest.lines:
            raise errors.BadRequest("the file is empty: there is nothing to do")
        if self._place is not None:
            try:
                self._have(self._place)
            except data_errors.ObjectMissing as error:
                raise upload_storage.incomplete_upload_error(self._upload) from error
        return self._manifest, None

    def _have(self, place: str) -> None:
        if not self._kept.link(place):
            with self._kept.store.writer(place) as new:
                for piece in self._kept.read():
                    new.write(piece)
                new.commit()

    def abort(self) -> None:
        """Do nothing, since only `finish` creates anything."""


def as_it_is(head: bytes, spec: filejobs.InputSpec) -> bool:
    """Return whether a file that begins with `head` is stored without changes as the input of a
    job.
    """
    return not in_place_indexing.needs_rewriting(
        head[: unsupported_formats.HEAD_BYTES], spec
    ) and not head.startswith(lines.BOM)
