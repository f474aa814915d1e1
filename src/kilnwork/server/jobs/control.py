"""What can be done to a job: cancel, pause, resume, redrive, change, delete.

Used by `app`. Each answer is the job as it is then, durably.
"""

from collections.abc import Awaitable, Callable

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import model
from kilnwork.server import errors
from kilnwork.server.jobs import body, calls, context, numbers, ranges

MERGE_PATCH = "application/merge-patch+json"
PATCH_BYTES = 64 << 10

_NOTHING = (b"", b"{}")
"""Bodies that say nothing: some clients send an empty object with each POST."""

Action = Callable[[str, str], Awaitable[model.JobView]]


class Patch(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    kw_only=True,
):
    """A merge patch (RFC 7396) of what may change while a job is there; null: as by default."""

    parallelism: filejobs.Parallelism | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_records: filejobs.Count | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_percent: filejobs.Percent | msgspec.UnsetType | None = msgspec.UNSET
    ttl_seconds_after_finished: filejobs.Seconds | msgspec.UnsetType | None = msgspec.UNSET
    priority: filejobs.Priority | msgspec.UnsetType | None = msgspec.UNSET
    suspend: bool | msgspec.UnsetType | None = msgspec.UNSET


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same inside of `spec`, where a job's document has it."""

    spec: Patch


class Control:
    """The handlers."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    async def cancel(self, call: calls.Call, answer: calls.Answer) -> None:
        """POST /jobs/ID/cancel."""

        async def cancelled(namespace: str, job: str) -> model.JobView:
            return await self._shared.jobs.cancel(namespace, job, message="cancelled by a user")

        await self._act(call, answer, cancelled)

    async def pause(self, call: calls.Call, answer: calls.Answer) -> None:
        """POST /jobs/ID/pause."""
        await self._act(call, answer, self._shared.jobs.pause)

    async def resume(self, call: calls.Call, answer: calls.Answer) -> None:
        """POST /jobs/ID/resume."""
        await self._act(call, answer, self._shared.jobs.resume)

    async def redrive(self, call: calls.Call, answer: calls.Answer) -> None:
        """POST /jobs/ID/redrive."""
        await self._act(call, answer, self._shared.jobs.redrive)

    async def _act(self, call: calls.Call, answer: calls.Answer, action: Action) -> None:
        view = await self._found(call, "patch")
        if (await body.Body(call).whole(most=PATCH_BYTES)).strip() not in _NOTHING:
            raise errors.BadRequest("this call takes no body: send none, or {}")
        await self._shared.send(call, answer, await action(view.namespace, view.id), status=202)

    async def patch(self, call: calls.Call, answer: calls.Answer) -> None:
        """PATCH /jobs/ID."""
        kind = (call.header(b"content-type") or MERGE_PATCH).split(";")[0].strip().lower()
        if kind not in (MERGE_PATCH, calls.JSON):
            raise errors.UnsupportedMediaType(
                f"Content-Type: {kind[:100]}: send {MERGE_PATCH}",
                headers=((b"accept-patch", MERGE_PATCH.encode()),),
            )
        view = await self._found(call, "patch")
        change = _change(await body.Body(call).whole(most=PATCH_BYTES))
        after = await self._shared.jobs.adjust(view.namespace, view.id, change)
        await self._shared.send(call, answer, after)

    async def delete(self, call: calls.Call, answer: calls.Answer) -> None:
        """DELETE /jobs/ID: gone for everybody now, its files soon."""
        call.only()
        view = await self._shared.job(call, "delete")
        ranges.check_match(call.header(b"if-match"), context.tag(view))
        await self._shared.jobs.delete(view.namespace, view.id)
        await calls.empty(answer, 202, ((b"content-length", b"0"),))

    async def _found(self, call: calls.Call, verb: str) -> model.JobView:
        self._shared.only_token(call)
        call.only()
        view = await self._shared.job(call, verb)
        ranges.check_match(call.header(b"if-match"), context.tag(view))
        return view


def _change(data: bytes) -> model.Adjustment:
    try:
        given = numbers.whole(numbers.decoded(data))
        if "spec" in given:
            patch = msgspec.convert(given, Whole).spec
        else:
            patch = msgspec.convert(given, Patch)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(Patch))
        raise errors.BadRequest(f"{error}; what can be changed: {known}") from error
    default = filejobs.JobSpec()
    return model.Adjustment(
        parallelism=patch.parallelism,
        max_failed_records=patch.max_failed_records,
        max_failed_percent=patch.max_failed_percent,
        ttl_seconds_after_finished=patch.ttl_seconds_after_finished,
        priority=default.priority if patch.priority is None else patch.priority,
        suspend=default.suspend if patch.suspend is None else patch.suspend,
    )
