"""A file job service that a test controls, with a real store behind it."""

import asyncio
import hashlib
import uuid
from pathlib import Path

import msgspec

from kilnwork.api import filejobs
from kilnwork.data.stores import local
from kilnwork.jobs import errors, file_job_service, file_job_types
from kilnwork.kit import clock as clocks
from kilnwork.kit import retention_clock

CREATED = 1_780_000_000.0
ANY = file_job_types.JobQuery()
_PROGRESS = file_job_types.FileProgress.__struct_fields__


class FakeFileJobs(file_job_service.FileJobs):
    """`created`: in order. `fail`: raised by the next `create`."""

    def __init__(self, directory: Path) -> None:
        self.store = local.LocalStore(directory)
        self.created: list[file_job_types.NewJob] = []
        self.fail: Exception | None = None
        self.acts: list[tuple[str, str]] = []
        self.fake_views: dict[str, file_job_types.JobView] = {}
        self.fake_manifests: dict[str, filejobs.Manifest] = {}
        self.fake_commits: dict[str, dict[int, filejobs.Commit]] = {}
        self.fake_keys: dict[tuple[str, str, str], tuple[str, bytes]] = {}
        self.fake_changed = asyncio.Event()
        self.fake_number = 0
        self.ages = retention_clock.RetentionClock(None, clocks.SystemClock())

    # What the API calls

    def new_id(self) -> file_job_types.JobId:
        self.fake_number += 1
        return file_job_types.JobId(
            uuid.UUID(int=self.fake_number).bytes, f"2026-11-{self.fake_number:05}"
        )

    def find_by_key(
        self, namespace: str, key: file_job_types.IdempotencyKey
    ) -> file_job_types.JobView | None:
        found = self.fake_keys.get((namespace, key.user, key.text))
        if found is None or found[0] not in self.fake_views:
            return None
        if found[1] != key.fingerprint:
            raise errors.KeyUsed(*found)
        return self.fake_views[found[0]]

    async def create(self, new: file_job_types.NewJob) -> tuple[file_job_types.JobView, bool]:
        failure, self.fail = self.fail, None
        if failure is not None:
            raise failure
        if new.key is not None:
            known = self.find_by_key(new.namespace, new.key)
            if known is not None:
                return known, False
            place = (new.namespace, new.key.user, new.key.text)
            self.fake_keys[place] = (new.id.text, new.key.fingerprint)
        self.created.append(new)
        self.fake_manifests[new.id.text] = new.manifest
        self.fake_commits[new.id.text] = {}
        view = self.fake_views[new.id.text] = _waiting(new)
        return view, True

    def job(self, namespace: str, ref: str) -> file_job_types.JobView | None:
        view = self.fake_views.get(ref)
        return view if view is not None and view.namespace == namespace else None

    def jobs(
        self,
        namespace: str | None,
        *,
        wanted: file_job_types.JobQuery = ANY,
        limit: int = 100,
        below: str | None = None,
    ) -> tuple[list[file_job_types.JobView], str | None]:
        found = [
            view
            for name, view in sorted(self.fake_views.items(), reverse=True)
            if namespace in (None, view.namespace)
            and (below is None or name < below)
            and wanted.phase in (None, view.phase)
            and wanted.name in (None, view.spec.name)
        ]
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    def manifest(self, namespace: str, job: str) -> filejobs.Manifest:
        return self.fake_manifests[job]

    def small_input(self, namespace: str, job: str) -> bytes | None:
        return next(new.inline for new in self.created if new.id.text == job)

    async def parts(
        self,
        namespace: str,
        job: str,
        *,
        after: int = 0,
        limit: int = 100,
        state: file_job_types.PartState | None = None,
    ) -> list[file_job_types.PartView]:
        found = [self._part(job, part) for part in self.fake_manifests[job].parts[after:]]
        return [view for view in found if state in (None, view.state)][:limit]

    async def part(self, namespace: str, job: str, number: int) -> file_job_types.PartView | None:
        parts = self.fake_manifests[job].parts
        return self._part(job, parts[number - 1]) if number <= len(parts) else None

    async def commits(self, namespace: str, job: str) -> list[filejobs.Commit]:
        """Return the commits given to `commit_part`."""
        return [commit for _, commit in sorted(self.fake_commits[job].items())]

    async def cancel(
        self, namespace: str, job: str, *, message: str = ""
    ) -> file_job_types.JobView:
        return self._act("cancel", job, filejobs.FileJobPhase.CANCELLED)

    async def pause(self, namespace: str, job: str) -> file_job_types.JobView:
        if self.fake_views[job].phase.final:
            raise errors.NotNow(f"job {job} is over: there is nothing to pause")
        return self._act("pause", job, filejobs.FileJobPhase.PAUSED)

    async def resume(self, namespace: str, job: str) -> file_job_types.JobView:
        return self._act("resume", job, filejobs.FileJobPhase.RUNNING)

    async def redrive(self, namespace: str, job: str) -> file_job_types.JobView:
        return self._act("redrive", job, filejobs.FileJobPhase.RUNNING)

    async def adjust(
        self, namespace: str, job: str, change: file_job_types.Adjustment
    ) -> file_job_types.JobView:
        given = {
            field: getattr(change, field)
            for field in change.__struct_fields__
            if getattr(change, field) is not msgspec.UNSET
        }
        spec = msgspec.structs.replace(self.fake_views[job].spec, **given)
        return self.move(job, spec=spec)

    async def delete(self, namespace: str, job: str) -> None:
        del self.fake_views[job]
        self._tell()

    async def wait_for_change(
        self, namespace: str, job: str, *, version: int, timeout_s: float, over: bool = False
    ) -> file_job_types.JobView | None:
        try:
            async with asyncio.timeout(timeout_s):
                while (view := self.fake_views.get(job)) is not None and not (
                    view.phase.final if over else view.version > version
                ):
                    await self.fake_changed.wait()
        except TimeoutError:
            return self.fake_views.get(job)
        return view

    # Controlled by the test

    def move(self, job: str, **fields: object) -> file_job_types.JobView:
        before = self.fake_views[job]
        own = {name: fields.pop(name) for name in _PROGRESS if name in fields}
        progress = msgspec.structs.replace(before.progress, **own)
        view = msgspec.structs.replace(
            before, version=before.version + 1, progress=progress, **fields
        )
        self.fake_views[job] = view
        self._tell()
        return view

    def commit_part(self, job: str, number: int, output: bytes, bad: bytes = b"") -> None:
        """The part has succeeded with this output, and these bad records."""
        self.fake_commits[job][number] = filejobs.Commit(
            part=number,
            run=1,
            attempt=1,
            outcome=filejobs.PartOutcome.SUCCEEDED,
            output=self._put(job, f"out/{number}-1-1.ndjson", output),
            errors=self._put(job, f"out/{number}-1-1.errors", bad),
        )

    def publish(self, job: str, result: bytes, *, apart: bool = False) -> file_job_types.JobView:
        """The job has succeeded with this result. `apart`: which its parts have left already."""
        parts = self.fake_views[job].parts
        done = msgspec.structs.replace(parts, pending=0, succeeded=parts.total)
        return self.move(
            job,
            phase=filejobs.FileJobPhase.SUCCEEDED,
            parts=done,
            output=_file(filejobs.OUTPUTS, result)
            if apart
            else self._put(job, "result/1-1", result),
            started=CREATED + 1,
            finished=CREATED + 3,
        )

    def _put(self, job: str, key: str, data: bytes) -> filejobs.StoredFile:
        self.store.put(f"{self.fake_views[job].directory}/{key}", data)
        return _file(key, data)

    def _act(self, name: str, job: str, phase: filejobs.FileJobPhase) -> file_job_types.JobView:
        self.acts.append((name, job))
        return self.move(job, phase=phase)

    def _part(self, job: str, part: filejobs.Part) -> file_job_types.PartView:
        commit = self.fake_commits[job].get(part.number)
        state = (
            file_job_types.PartState.WAITING
            if commit is None
            else file_job_types.PartState.SUCCEEDED
        )
        return file_job_types.PartView(
            part=part,
            state=state,
            run=1,
            attempt=0,
            worker="",
            message="",
            started=None,
            finished=None,
            task="",
            commit=commit,
        )

    def _tell(self) -> None:
        self.fake_changed.set()
        self.fake_changed = asyncio.Event()


def _waiting(new: file_job_types.NewJob) -> file_job_types.JobView:
    parts = len(new.manifest.parts)
    return file_job_types.GenericJobView(
        id=new.id.text,
        uuid=new.id.uuid,
        namespace=new.namespace,
        user=new.user,
        spec=new.spec,
        phase=filejobs.FileJobPhase.PENDING,
        reason="",
        message="",
        created=CREATED,
        started=None,
        finished=None,
        expires=None,
        run=1,
        parts=file_job_types.PartCounts(total=parts, pending=parts),
        progress=file_job_types.FileProgress(
            lines=new.manifest.lines, bytes=new.manifest.bytes, sha256=new.manifest.sha256
        ),
        failures=0,
        losses=0,
        deleting=False,
        version=1,
    )


def _file(key: str, data: bytes) -> filejobs.StoredFile:
    digest = hashlib.sha256(data).hexdigest()
    return filejobs.StoredFile(key=key, bytes=len(data), lines=data.count(b"\n"), sha256=digest)
