"""Submission of file jobs: POST /jobs receives a file, and creates a job once its last byte is on
disk.

Used by `app`. The file is a multipart field `file`, the raw body, or a file that was uploaded to
/files before (`file=ID`). It is invisible until it is complete; if the client disconnects, the disk
is full, or the request is refused, nothing remains. With an `Idempotency-Key`
(draft-ietf-httpapi-idempotency-key-header) the same request creates one job however often it is
sent.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import msgspec

from kilnwork.api import filejobs
from kilnwork.data.stores import port
from kilnwork.jobs import errors as jobs_errors
from kilnwork.jobs import file_job_types
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import (
    aksjobscheduler_settings,
    body,
    context,
    form_upload,
    http_resource_base,
    ignored_fields,
    input_writer,
    parameters,
    upload_handlers,
    uploaded_input,
)

FILE = "file"
KEY_HEADER = b"idempotency-key"
MAX_KEY_CHARS = 255
SPEC_BYTES = 1 << 20
TEXT = "text/plain; charset=utf-8"

KNOWN = (*parameters.KNOWN, FILE)
_KNOWN = frozenset(KNOWN)
_QUERY = _KNOWN | {"namespace"}

_GZIP = ("gzip", "x-gzip")

_Claim = tuple[str, str, str]


@dataclass(slots=True)
class _Submission:
    """A request that is to create a job.

    `measured`: the request's key has created a job already, so that the body is compared with that
    job's input and not stored. `target`: receiver of the body, once it exists.
    """

    request: http_resource_base.JobRequest
    namespace: str
    id: file_job_types.JobId
    measured: bool
    given: Mapping[str, str]
    user: str
    text: str
    encoded: bool = False
    target: input_writer.JobInput | uploaded_input.ReferencedInput | None = field(default=None)

    @property
    def place(self) -> str:
        """Key of the input in the store."""
        return f"{self.namespace}/{self.id.dashed}/{file_job_types.DIRECTORY_INPUT}"

    def key(self, fingerprint: bytes) -> file_job_types.IdempotencyKey | None:
        """Return the idempotency key, or None if the client sent none."""
        return (
            file_job_types.IdempotencyKey(self.user, self.text, fingerprint) if self.text else None
        )


class Submit:
    """Handler of POST /jobs."""

    def __init__(self, shared: context.HandlerContext, uploaded: upload_handlers.Files) -> None:
        self._shared = shared
        self._files = uploaded
        self._claimed: set[_Claim] = set()

    async def post(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Create a job: POST /jobs."""
        if request.user is not None and not request.query.keys() <= _QUERY:
            request.check_known(*KNOWN)
        namespace = await self._shared.check(request, "create")
        self._shared.check_namespace(namespace)
        if request.user is None:
            _check_anonymous_parameters(request.query, request)
        user = request.user_name
        self._shared.limits.admit(user)
        text = idempotency_key(request)
        given = {name: value for name, value in request.query.items() if name in _KNOWN}
        with self._claim((namespace, user, text)), self._shared.limits.upload(user):
            submission = _Submission(
                request,
                namespace,
                self._shared.jobs.new_id(),
                measured=self._is_key_used(request, file_job_types.IdempotencyKey(user, text, b"")),
                given=given,
                user=user,
                text=text,
            )
            submission.encoded = _is_compressed(request)
            view, made = await self._receive(submission)
        await self._respond(request, response, view, replayed=not made)

    def _claim(self, claim: _Claim) -> AbstractContextManager[None]:
        """Return a context manager that allows only one request at a time with the same key."""
        return _Claimed(self._claimed, claim) if claim[2] else _UNCLAIMED

    def _is_key_used(
        self, request: http_resource_base.JobRequest, key: file_job_types.IdempotencyKey
    ) -> bool:
        """Return whether the idempotency key has created a job, so that the body is only compared
        with that job's input.

        For a small body this is not checked, since it would not be stored anyway.
        """
        length = request.header(b"content-length") or ""
        small = length.isdecimal() and int(length) <= body.INLINE_BYTES
        if not key.text or (small and FILE not in request.query):
            return False
        try:
            return self._shared.jobs.find_by_key(request.namespace, key) is not None
        except jobs_errors.KeyUsed:
            return True

    async def _receive(self, submission: _Submission) -> tuple[file_job_types.JobView, bool]:
        """Read the body and create the job. After any failure, delete what was stored."""
        try:
            if FILE in submission.given:
                view, made = await self._by_reference(submission, submission.given[FILE])
            else:
                view, made = await self._from_body(submission)
        except BaseException:
            await self._discard(submission)
            raise
        else:
            if not made:
                await self._discard(submission)
            return view, made
        finally:
            submission.target = None  # break the reference cycle, so that its memory is freed now

    async def _by_reference(
        self, submission: _Submission, reference: str
    ) -> tuple[file_job_types.JobView, bool]:
        try:
            target = self._target(submission, await _read_spec_body(submission.request))
        except errors.HttpError:
            await self._files.find_upload(
                submission.namespace, reference
            )  # a missing upload is reported first
            raise
        place = None if submission.measured else submission.place
        submission.target = await self._files.use_as_input(
            submission.request, reference, target, place=place
        )
        return await self._create(submission, submission.target)

    async def _from_body(self, submission: _Submission) -> tuple[file_job_types.JobView, bool]:
        content_types = submission.request.headers(b"content-type")
        in_form = form_upload.is_form(content_types)
        if in_form is None:
            raise errors.UnsupportedMediaType(
                f"Content-Type: {content_types[0][:100]}: send multipart/form-data, or the file "
                "itself as another type"
            )
        most = self._shared.settings.most_body_bytes
        incoming = body.open_body(submission.request, limit=most, unpacks=not in_form)
        if incoming.length is not None:
            self._shared.room.check(incoming.length)
        if in_form:
            opener = functools.partial(self._target, submission)
            form = form_upload.Form(form_upload.boundaries(content_types), opener)
            await body.feed_sink(incoming, form, self._shared.pool, turns=self._shared.turns)
            form.finish()
            self._add_late(submission, form)
        else:
            target = self._target(submission, {})
            await body.feed_sink(incoming, target, self._shared.pool, turns=self._shared.turns)
        if submission.target is None:
            raise asgi.Disconnected  # not reached: `finish` refuses a form without a file
        return await self._create(submission, submission.target)

    async def _create(
        self,
        submission: _Submission,
        target: input_writer.JobInput | uploaded_input.ReferencedInput,
    ) -> tuple[file_job_types.JobView, bool]:
        """Finish the input and create the job. A small input is finished at once, a large one in a
        thread."""
        small = target.small
        manifest, inline = target.finish() if small else await self._shared.run(target.finish)
        key = submission.key(input_writer.fingerprint(target.spec, manifest.sha256))
        if submission.measured and key is not None:
            return self._find_existing(submission, key), False
        new = file_job_types.NewJob(
            id=submission.id,
            namespace=submission.namespace,
            spec=target.spec,
            manifest=manifest,
            inline=inline,
            key=key,
            user=submission.user,
        )
        return await self._shared.jobs.create(new)

    def _find_existing(
        self, submission: _Submission, key: file_job_types.IdempotencyKey
    ) -> file_job_types.JobView:
        """Return the job that this idempotency key has created. Raises `KeyUsed`, and Conflict if
        the job was deleted meanwhile.
        """
        found = self._shared.jobs.find_by_key(submission.namespace, key)
        if found is None:
            raise errors.Conflict(
                "the job that this Idempotency-Key had made has just been deleted: use a new key"
            )
        return found

    async def _discard(self, submission: _Submission) -> None:
        target = submission.target
        if target is None or not target.stored:
            return

        def remove() -> None:
            target.abort()
            self._shared.store.delete([submission.place])

        await self._shared.run(remove)

    def _add_late(self, submission: _Submission, form: form_upload.Form) -> None:
        """Apply form fields that came after the file, unless they change how the file is read."""
        target = submission.target
        if target is None or form.fields == form.before:
            return
        spec = self._spec(submission, form.fields)
        if not input_writer.read_alike(spec, target.spec):
            late = [name for name in form.fields if name not in form.before]
            raise errors.BadRequest(
                f"field {late[0][:100]!r} comes after the file, which has been read by then: put "
                f"it before (curl -F {late[0][:20]}=… -F {form_upload.FILE}=@FILE)"
            )
        target.spec = spec

    def _target(self, submission: _Submission, fields: Mapping[str, str]) -> input_writer.JobInput:
        """Create the receiver of the file. Called when the file begins, in any thread."""
        spec = self._spec(submission, fields)
        opened: Callable[[], port.Writer] | None = None
        if not submission.measured:
            opened = functools.partial(self._writer, submission)
        submission.target = input_writer.JobInput(
            spec,
            opened,
            chosen=self._shared.settings,
        )
        return submission.target

    def _writer(self, submission: _Submission) -> port.Writer:
        return self._shared.store.writer(submission.place)

    def _spec(self, submission: _Submission, fields: Mapping[str, str]) -> filejobs.FileJobSpec:
        if submission.request.user is None:
            _check_anonymous_parameters(fields, submission.request)
        else:
            submission.request.warnings += ignored_fields.of_parameters(fields)
            unknown = [name for name in fields if name not in parameters.KNOWN]
            if unknown:
                raise errors.BadRequest(
                    f"unknown field {unknown[0][:100]!r}: known are {form_upload.FILE}, "
                    f"{', '.join(parameters.KNOWN)}"
                )
        if fields and submission.given:
            parameters.parse_spec(
                fields, compat=None
            )  # fields that the URL overrides must be valid too
        given = (
            parameters.merge_parameters(fields, submission.given) if fields else submission.given
        )
        spec = parameters.parse_spec(given, compat=self._shared.settings.source)
        self._shared.check_cluster(submission.namespace, spec.cluster_name)
        self._check_line(spec.input.max_line_bytes)
        if not submission.encoded:
            return spec
        unpacked = msgspec.structs.replace(spec.input, gzip=True)
        return msgspec.structs.replace(spec, input=unpacked)

    def _check_line(self, wanted: int) -> None:
        most = self._shared.settings.most_line_bytes
        if wanted > most:
            raise errors.UnprocessableContent(
                f"input.maxLineBytes: {wanted:,}: records of {most:,} bytes are the longest that "
                "this server takes (--max-line): ask for less, or have its operator raise that"
            )

    async def _respond(
        self,
        request: http_resource_base.JobRequest,
        response: asgi.Response,
        view: file_job_types.JobView,
        *,
        replayed: bool,
    ) -> None:
        more = [
            (b"location", context.job_location(view)),
            (b"etag", context.job_etag(view).encode()),
        ]
        if replayed:
            more.append((b"idempotency-replayed", b"true"))
        found = ignored_fields.of_parameters(request.query) + ignored_fields.of_spec(view.spec)
        if found or request.warnings:
            request.warnings = list(dict.fromkeys((*request.warnings, *found)))
        if self._wants_id_only(request):
            await response.send(202, TEXT, view.id.encode(), headers=more)
        else:
            document = self._shared.encode_document(view, warnings=request.warnings)
            await response.send(202, asgi.JSON, document, headers=more)

    def _wants_id_only(self, request: http_resource_base.JobRequest) -> bool:
        """Return whether to send only the job's id as text, as aksjobscheduler does.

        A client asks for that with `Accept: text/plain`. Under `--source-compat` it is the default,
        unless the client accepts JSON explicitly.
        """
        accept = request.header(b"accept") or "*/*"
        if "text/plain" in accept:
            return True
        return self._shared.settings.source is not None and "json" not in accept


class _Claimed:
    """Context manager that holds a claim on an idempotency key."""

    __slots__ = ("_all", "_claim")

    def __init__(self, all_: set[_Claim], claim: _Claim) -> None:
        self._all = all_
        self._claim = claim

    def __enter__(self) -> None:
        if self._claim in self._all:
            raise errors.Conflict(
                "a request with this Idempotency-Key is under way: ask again when it is over",
                headers=((b"retry-after", b"1"),),
            )
        self._all.add(self._claim)

    def __exit__(self, *_: object) -> None:
        self._all.discard(self._claim)


_UNCLAIMED = contextlib.nullcontext()


def idempotency_key(request: http_resource_base.JobRequest) -> str:
    """Return the idempotency key of a request, or "" if it has none.

    The header is a string as in RFC 8941, or the bare word that most clients send. Raises
    BadRequest.
    """
    found = request.headers(KEY_HEADER)
    if not found:
        return ""
    text = found[0].strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if len(found) > 1 or not 0 < len(text) <= MAX_KEY_CHARS or not text.isascii():
        raise errors.BadRequest(
            f"Idempotency-Key: one of 1 to {MAX_KEY_CHARS} ASCII characters is expected, a UUID say"
        )
    return text


def _check_anonymous_parameters(
    given: Mapping[str, str], request: http_resource_base.JobRequest
) -> None:
    """Check the parameters of a request without a token.

    Parameters that only callers with a token may set are refused. Unknown parameters cause
    warnings; aksjobscheduler ignores them silently.
    """
    for name in given:
        if name in (*parameters.KNOWN, FILE) and name not in aksjobscheduler_settings.PARAMETERS:
            raise context.unauthorized_error(name)
    known = (*aksjobscheduler_settings.PARAMETERS, form_upload.FILE, "namespace")
    request.warnings += ignored_fields.of_unknown(name for name in given if name not in known)


async def _read_spec_body(request: http_resource_base.JobRequest) -> dict[str, str]:
    """Read the body of a request with `file=ID`, which is the job's spec or empty, and return it as
    parameters.
    """
    data = await body.open_body(request).read(limit=SPEC_BYTES)
    if not data:
        return {}
    try:
        return {parameters.SPEC: data.decode()}
    except UnicodeDecodeError as error:
        raise errors.BadRequest(
            f"with {FILE}=… the body is the job's spec as JSON: this is not UTF-8"
        ) from error


def _is_compressed(request: http_resource_base.JobRequest) -> bool:
    """Return whether the body is declared as compressed. Raises UnsupportedMediaType."""
    codings = body.content_coding(request)
    if not codings:
        return False
    if codings in _GZIP:
        return True
    raise errors.UnsupportedMediaType(
        f"Content-Encoding: {codings[:100]}: send it as it is, or with gzip",
        headers=((b"accept-encoding", b"gzip, identity"),),
    )
