"""Uploads: `/files` receives resumable uploads, which jobs can use as their input.

Used by `app` and `submit`. The protocol is draft-ietf-httpbis-resumable-upload: POST creates an
upload, HEAD returns how much has arrived, PATCH appends from there, DELETE deletes it. Confirmed
bytes are on disk. A file becomes an input only when a job takes it (`POST /jobs?file=ID`). It is
deleted a day after its last bytes arrived, which does not affect the job.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data.records import in_place_indexing, unsupported_formats
from kilnwork.data.stores import local_resumable, resumable_uploads
from kilnwork.kit import asgi, clock
from kilnwork.server import errors
from kilnwork.server.jobs import (
    body,
    context,
    http_resource_base,
    input_writer,
    upload_quotas,
    upload_storage,
    uploaded_input,
)

PARTIAL = "application/partial-upload"

_PROBLEMS = "https://iana.org/assignments/http-problem-types#"
_STEP_BYTES = 32 << 20
"""Number of bytes processed in one step; then other requests have their turn."""
_SLOW_STEP_BYTES = 512 << 10
"""The same for files that are unpacked or split into parts."""

_NUMBER = re.compile(r"\d{1,15}", re.ASCII)


class _MismatchingOffset(errors.Conflict):
    type = _PROBLEMS + "mismatching-upload-offset"


class _CompletedUpload(errors.Conflict):
    type = _PROBLEMS + "completed-upload"


class _InconsistentLength(errors.BadRequest):
    type = _PROBLEMS + "inconsistent-upload-length"


class Upload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """JSON document of an upload. `offset`: number of bytes stored; `length`: total number, once it
    is known.
    """

    id: str
    namespace: str
    offset: int
    complete: bool
    length: int | None = None
    creation_time: str
    expiration_time: str


class _UploadRequest(NamedTuple):
    """Statements of a request about its upload. `complete`: the upload ends with this body."""

    complete: bool
    length: int | None


class Files:
    """Handlers of requests to `/files`."""

    def __init__(self, shared: context.HandlerContext) -> None:
        self._shared = shared
        self._uploads = upload_storage.Uploads(shared.store)
        self._quotas = upload_quotas.Quotas(self._uploads, shared.settings, shared.room)

    async def post(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Create an upload, with all, some or none of its bytes: POST /files."""
        namespace = await self._check(request, "create")
        self._shared.check_namespace(namespace)
        asked = _parse_headers(request, default=True)
        kind = (request.header(b"content-type") or "").lower()
        if kind.startswith("multipart/"):
            raise errors.UnsupportedMediaType(
                "a file comes here as the raw body (curl -T FILE -X POST); forms go to /jobs"
            )
        await self._load()
        self._quotas.check_count(request.user_name)
        incoming = self._body(request, None, asked)
        new = self._shared.jobs.new_id().dashed
        state = upload_storage.UploadState(
            created=self._shared.clock.wall(), user=request.user_name, length=asked.length
        )
        with self._shared.limits.upload(request.user_name):
            upload = await self._shared.run(lambda: self._uploads.begin(namespace, new, state))
            self._quotas.record_upload(upload)
            after = await self._append(upload, incoming, asked)
        where = f"/files/{new}{context.namespace_query(namespace)}".encode()
        more = (*_headers(after), (b"location", where), (b"upload-limit", self._limit()))
        await response.send(201, asgi.JSON, _encode(after), headers=more)

    async def patch(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Append bytes to an upload at `Upload-Offset`: PATCH /files/ID."""
        kind = (request.header(b"content-type") or "").split(";")[0].strip().lower()
        if kind not in (PARTIAL, "application/octet-stream", ""):
            raise errors.UnsupportedMediaType(
                f"Content-Type: {kind[:100]}: send {PARTIAL}",
                headers=((b"accept-patch", PARTIAL.encode()),),
            )
        upload = await self._find(request, "create")
        offset = _number(request, b"upload-offset")
        if offset is None:
            raise errors.BadRequest("Upload-Offset is missing: HEAD tells from where to go on")
        asked = _parse_headers(request, default=False)
        if upload.state.complete:
            raise _CompletedUpload(f"file {upload.id} is complete", headers=_headers(upload))
        if offset != upload.offset:
            raise _mismatch(upload, offset)
        asked = _check_length(upload, asked)
        await self._load()
        incoming = self._body(request, upload, asked)
        with self._shared.limits.upload(request.user_name):
            after = await self._append(upload, incoming, asked)
        if after.state.complete:
            await response.send(200, asgi.JSON, _encode(after), headers=_headers(after))
        else:
            await response.empty(204, _headers(after))

    async def head(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Send the number of bytes stored of an upload: HEAD /files/ID."""
        upload = await self._find(request, "get")
        more = (*_headers(upload), (b"upload-limit", self._limit()))
        await response.empty(204, more)

    async def get(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Send the document of an upload: GET /files/ID."""
        upload = await self._find(request, "get")
        await response.send(200, asgi.JSON, _encode(upload), headers=_headers(upload))

    async def list_uploads(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send the documents of all uploads of a namespace, in no particular order: GET /files."""
        namespace = await self._check(request, "list")

        def read() -> list[Upload]:
            return [_to_document(one) for one in self._uploads.list(namespace)]

        await response.send(
            200, asgi.JSON, msgspec.json.encode(await self._shared.run(read)) + b"\n"
        )

    async def delete(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Delete an upload: DELETE /files/ID."""
        upload = await self._find(request, "delete")
        await self._shared.run(lambda: self._uploads.remove(upload))
        self._quotas.drop_upload(upload)
        await response.empty(204)

    async def use_as_input(
        self,
        request: http_resource_base.JobRequest,
        ref: str,
        target: input_writer.JobInput,
        *,
        place: str | None,
    ) -> input_writer.JobInput | uploaded_input.ReferencedInput:
        """Return the receiver that makes a complete upload the input of a job.

        The upload is either copied into `target` or, if the store can link it at the key `place`,
        used without a copy. With `place` None it is only indexed. Raises NotFound, and Conflict if
        the upload is incomplete.
        """
        upload = await self.find_upload(request.namespace, ref)
        if not upload.state.complete:
            raise errors.Conflict(
                f"file {upload.id} is not complete: {upload.offset:,} bytes have come. Send the "
                "rest, the last of it with Upload-Complete: ?1"
            )
        try:
            return await self._copy_or_index(request, upload, target, place=place)
        except (data_errors.ObjectMissing, data_errors.FileChanged) as error:
            raise upload_storage.incomplete_upload_error(upload) from error

    async def _copy_or_index(
        self,
        request: http_resource_base.JobRequest,
        upload: upload_storage.StoredUpload,
        target: input_writer.JobInput,
        *,
        place: str | None,
    ) -> input_writer.JobInput | uploaded_input.ReferencedInput:
        most = self._shared.settings.most_stored_bytes
        if upload.offset > body.INLINE_BYTES and (most is None or upload.offset <= most):
            found = await self._index_in_place(request, upload, target.spec, place=place)
            if found is not None:
                return found
        pieces, copied = upload.bytes.read(), 0
        while count := await self._shared.in_turn(lambda: _copy_pieces(pieces, target)):
            copied += count
            await _check_connected(request)
        if not upload.whole or copied != upload.offset:
            raise upload_storage.incomplete_upload_error(upload)
        return target

    async def _index_in_place(
        self,
        request: http_resource_base.JobRequest,
        upload: upload_storage.StoredUpload,
        spec: filejobs.FileJobSpec,
        *,
        place: str | None,
    ) -> uploaded_input.ReferencedInput | None:
        """Index an upload where it is stored. Return None if it has to be copied like the body of a
        request.
        """
        kept = upload.bytes
        if not isinstance(kept, local_resumable.LocalResumableUpload):
            return None
        with contextlib.ExitStack() as opened:
            descriptor = await self._shared.run(kept.open)
            opened.callback(os.close, descriptor)
            if not uploaded_input.as_it_is(
                os.pread(descriptor, unsupported_formats.HEAD_BYTES, 0), spec.input
            ):
                return None
            indexing = opened.enter_context(in_place_indexing.Indexing(descriptor, spec))
            while await self._shared.in_turn(lambda: indexing.index_bytes(_STEP_BYTES)):
                await _check_connected(request)
            manifest = await self._shared.in_turn(indexing.finish)
        if not upload.whole or manifest.bytes != upload.offset:
            raise upload_storage.incomplete_upload_error(upload)
        return uploaded_input.ReferencedInput(
            upload, kept, spec=spec, manifest=manifest, place=place
        )

    def delete_stale(self) -> int:
        """Delete uploads that received nothing for a day; return the number of deleted uploads.
        Blocks.
        """
        count = self._uploads.delete_stale(
            before=self._shared.jobs.ages.old_before(upload_storage.KEEP_S)
        )
        self._quotas.forget()
        return count

    async def _append(
        self, upload: upload_storage.StoredUpload, incoming: asgi.Body, asked: _UploadRequest
    ) -> upload_storage.StoredUpload:
        """Append the body of a request to the upload. If the body breaks off, the bytes that have
        arrived are kept.
        """
        appender = await self._shared.run(
            lambda: resumable_uploads.append(upload.bytes, upload.offset)
        )
        sink = _Appending(appender)
        try:
            await body.feed_sink(incoming, sink, self._shared.pool, inline=False)
        except data_errors.StoreError:
            await self._shared.run(appender.abort)
            raise
        except BaseException:
            offset = await self._shared.run(appender.commit)
            self._quotas.record_upload(upload._replace(offset=offset))
            raise
        offset = await self._shared.run(appender.commit)
        if asked.complete and asked.length is not None and offset != asked.length:
            raise _InconsistentLength(
                f"the upload is said to be complete with {offset:,} bytes, and to have "
                f"{asked.length:,}"
            )
        length = offset if asked.complete else asked.length
        state = msgspec.structs.replace(upload.state, complete=asked.complete, length=length)
        upload = upload._replace(offset=offset, touched=self._shared.clock.wall())
        if state != upload.state:
            upload = await self._shared.run(lambda: self._uploads.save(upload, state))
        self._quotas.record_upload(upload)
        return upload

    async def _load(self) -> None:
        if not self._quotas.ready:
            await self._shared.run(self._quotas.load)

    def _body(
        self,
        request: http_resource_base.JobRequest,
        upload: upload_storage.StoredUpload | None,
        asked: _UploadRequest,
    ) -> asgi.Body:
        """Return the body sent for an upload; `upload` is None for a new one."""
        at = 0 if upload is None else upload.offset
        most = self._shared.settings.most_body_bytes
        if asked.length is not None and most is not None and asked.length > most:
            raise errors.ContentTooLarge(
                f"Upload-Length: {asked.length:,} bytes: {most:,} are taken here"
            )
        end = most if asked.length is None else asked.length
        most = None if end is None else max(end - at, 0)
        size = max(body.open_body(request, limit=most).length or 0, (asked.length or 0) - at)
        self._shared.room.check(size)
        user, ref = (request.user_name, None) if upload is None else (upload.state.user, upload.id)
        left = self._quotas.remaining_bytes(user, ref, offset=at, size=size)
        bounds = [bound for bound in (most, left) if bound is not None]
        return body.open_body(request, limit=min(bounds, default=None))

    async def find_upload(self, namespace: str, ref: str) -> upload_storage.StoredUpload:
        """Return the upload with this id. Raises NotFound."""
        upload = await self._shared.run(lambda: self._uploads.find(namespace, ref))
        if upload is None:
            raise upload_storage.missing_upload_error(ref, namespace)
        return upload

    async def _check(
        self, request: http_resource_base.JobRequest, verb: str, *, name: str = ""
    ) -> str:
        self._shared.require_token(request)
        request.check_known()
        return await self._shared.check(request, verb, name=name)

    async def _find(
        self, request: http_resource_base.JobRequest, verb: str
    ) -> upload_storage.StoredUpload:
        ref = request.param("file")
        namespace = await self._check(request, verb, name=ref)
        return await self.find_upload(namespace, ref)

    def _limit(self) -> bytes:
        most = self._shared.settings.most_body_bytes
        size = "" if most is None else f"max-size={most}, "
        return f"{size}max-age={upload_storage.KEEP_S}".encode()


class _Appending:
    """Sink that appends a body to an upload (`body.Sink`)."""

    slow = False

    def __init__(self, appender: resumable_uploads.Appender) -> None:
        self._appender = appender

    def process(self, piece: bytes) -> None:
        self._appender.write(piece)


async def _check_connected(request: http_resource_base.JobRequest) -> None:
    """Raise `Disconnected` if the client has disconnected."""
    if await request.disconnected(within_s=0):
        raise asgi.Disconnected


def _copy_pieces(pieces: Iterator[bytes], target: input_writer.JobInput) -> int:
    """Write some pieces to `target`; return the number of bytes, 0 when there are no more
    pieces.
    """
    count = 0
    for piece in pieces:
        target.process(piece)
        count += len(piece)
        if count >= (_SLOW_STEP_BYTES if target.slow else _STEP_BYTES):
            break
    return count


def _parse_headers(request: http_resource_base.JobRequest, *, default: bool) -> _UploadRequest:
    text = request.header(b"upload-complete")
    known = {None: default, "?1": True, "?0": False}
    if text not in known:
        raise errors.BadRequest(f"Upload-Complete: {str(text)[:50]}: write ?1 or ?0")
    return _UploadRequest(known[text], _number(request, b"upload-length"))


def _number(request: http_resource_base.JobRequest, name: bytes) -> int | None:
    text = request.header(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text.strip()):
        title = name.decode().title()
        raise errors.BadRequest(f"{title}: {text[:50]}: a whole number is expected")
    return int(text)


def _check_length(upload: upload_storage.StoredUpload, asked: _UploadRequest) -> _UploadRequest:
    """Return the request's statements, completed with the length that an earlier request stated.
    Raises if the lengths differ.
    """
    known = upload.state.length
    if known is None or asked.length == known:
        return asked
    if asked.length is not None:
        raise _InconsistentLength(
            f"Upload-Length: {asked.length}: it was said to be {known} before"
        )
    return asked._replace(length=known)


def _mismatch(upload: upload_storage.StoredUpload, offset: int) -> errors.Conflict:
    return _MismatchingOffset(
        f"Upload-Offset: {offset}: {upload.offset} bytes have come, go on from there",
        members={"expected-offset": upload.offset, "provided-offset": offset},
        headers=_headers(upload),
    )


def _headers(upload: upload_storage.StoredUpload) -> tuple[tuple[bytes, bytes], ...]:
    found = [
        (b"upload-offset", str(upload.offset).encode()),
        (b"upload-complete", b"?1" if upload.state.complete else b"?0"),
    ]
    if upload.state.length is not None:
        found.append((b"upload-length", str(upload.state.length).encode()))
    return tuple(found)


def _to_document(upload: upload_storage.StoredUpload) -> Upload:
    return Upload(
        id=upload.id,
        namespace=upload.namespace,
        offset=upload.offset,
        complete=upload.state.complete,
        length=upload.state.length,
        creation_time=clock.rfc3339_micro(upload.state.created),
        expiration_time=clock.rfc3339(upload.touched + upload_storage.KEEP_S),
    )


def _encode(upload: upload_storage.StoredUpload) -> bytes:
    return msgspec.json.encode(_to_document(upload)) + b"\n"
