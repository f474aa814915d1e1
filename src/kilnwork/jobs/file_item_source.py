"""File items: the parts of a file as items of a job, with commit records, bad records, merging and
reducer.

Used by `file_job_service`, which passes `FileSources` to the engine, and by `job_cleanup` and
`part_listing`. Only a commit record ends a part (`kilnwork.data.part_commits`), no matter which
attempt wrote it; the commit record of part 0 says how the job ended.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import cast

import msgspec

from kilnwork.api import attempts, filejobs, names, resolved_job_settings
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.data import errors as data_errors
from kilnwork.data import part_commits
from kilnwork.data.records import manifest_encoding
from kilnwork.data.stores import port, store_urls
from kilnwork.jobs import (
    errors,
    file_job_types,
    item_source,
    item_states,
    job_directory,
    live_job_state,
    plan_steps,
    rows,
)
from kilnwork.kit import clock as clocks

log = logging.getLogger(__name__)

MAP = "kilnwork.jobs.work.part:run"
REDUCE = "kilnwork.jobs.work.reduce:run"

MAX_SPEC_BYTES = 128 * 1024
"""Maximum size in bytes of the encoded spec with the header of a CSV file, which are sent to the
worker with each part; a task may have 768 KiB."""

MAX_COMMITS = 1024
"""Maximum number of commit records kept in memory, the newest that were written or read: most
records are read soon after their part ends, or never."""

_SMALL_SPEC = 4096
_O = filejobs.PartOutcome
_R = file_job_types.Reason
_encode = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(filejobs.FileJobSpec).decode
_decode_manifest = msgspec.json.Decoder(filejobs.Manifest).decode
_decode_progress = msgspec.json.Decoder(file_job_types.FileProgress).decode


@lru_cache(maxsize=1024)
def _small_spec(encoded: bytes) -> filejobs.FileJobSpec:
    return _decode_spec(encoded)


def check_spec(spec: filejobs.FileJobSpec, manifest: filejobs.Manifest) -> None:
    """Check that the spec is not too large and has the format of the manifest, and that the parts
    of the manifest are not too many and cover the input without gaps or overlaps. Raises
    `InvalidJob`.
    """
    try:
        manifest_encoding.checked(manifest)
    except data_errors.ManifestDamaged as error:
        raise errors.InvalidJob(f"manifest: {error}; upload the input again") from error
    size = len(_encode((spec, manifest.header)))
    if size > MAX_SPEC_BYTES:
        raise errors.InvalidJob(
            f"spec: it takes {size} bytes with the names of columns; at most {MAX_SPEC_BYTES} are "
            "allowed. Put long programs into a file that workers have, or into code"
        )
    if len(manifest.parts) > filejobs.MAX_PARTS:
        raise errors.InvalidJob(
            f"manifest.parts: {len(manifest.parts)} parts; at most {filejobs.MAX_PARTS} are allowed"
        )
    if spec.input.format is not manifest.format:
        raise errors.InvalidJob(
            f"input.format: {spec.input.format.value}, but the input was read as "
            f"{manifest.format.value}"
        )


def check_commit(commit: filejobs.Commit, part: filejobs.Part) -> filejobs.Commit:
    """Return the commit record of a part, changed to a failure if its record counts do not add
    up.
    """
    found = commit.records
    total = found.succeeded + found.failed + found.skipped
    if commit.outcome is not _O.SUCCEEDED or total == found.total == part.lines:
        return commit
    message = (
        f"{part.lines} records, but {found.succeeded} succeeded, {found.failed} failed and "
        f"{found.skipped} were skipped: a mapper of another version?"
    )
    return msgspec.structs.replace(commit, outcome=_O.FAILED, message=message)


class FileSources:
    """Factory of the item sources of file jobs (`rows.SourceKind`).

    It has access to the store of their files. `worker_url` is the URL under which workers open the
    store, None if it is the store's own. `opened` opens a store by URL. `ttl_s`: see
    `rows.SourceKind`.
    """

    nouns = "parts"

    def __init__(
        self,
        store: port.Store,
        *,
        worker_url: str | None,
        opened: Callable[[str], port.Store],
        clock: clocks.Clock,
        ttl_s: float | None = None,
    ) -> None:
        self.store, self.clock, self.ttl_s = store, clock, ttl_s
        self.worker_url = worker_url or store.url
        self._opened = opened
        self._open = lru_cache(maxsize=256)(self._open_directory)
        self._read_commits: OrderedDict[tuple[bytes, int, int], filejobs.Commit] = OrderedDict()
        self._lock = threading.Lock()

    def spec(self, encoded: bytes) -> filejobs.FileJobSpec:
        """Decode the spec of a job. Equal small specs are the same object, since most jobs resemble
        others.
        """
        return _decode_spec(encoded) if len(encoded) > _SMALL_SPEC else _small_spec(encoded)

    def progress(self, encoded: bytes) -> file_job_types.FileProgress:
        """Decode the progress of a job."""
        return _decode_progress(encoded)

    def detail(self, row: rows.JobRow) -> None:
        """Return None, like `FileItems.detail`."""

    def load(self, spec: item_source.Policy, *, definition: bytes, progress: bytes) -> "FileItems":
        """Return the item source of a job, given the encoded columns of its rows in the journal."""
        manifest = _decode_manifest(definition)
        return FileItems(self, _file_spec(spec), manifest, _decode_progress(progress))

    def new(
        self, spec: filejobs.FileJobSpec, manifest: filejobs.Manifest, *, source: str | None
    ) -> "FileItems":
        """Return the item source of a new job. `source`: see `file_job_types.NewJob`."""
        progress = file_job_types.FileProgress(
            lines=manifest.lines, bytes=manifest.bytes, sha256=manifest.sha256, source=source
        )
        return FileItems(self, spec, manifest, progress)

    def directory(self, namespace: str, job: file_job_types.JobId) -> port.Store:
        """Return the directory of a job, as a store of its own."""
        return self._open(namespace, job)

    def _open_directory(self, namespace: str, job: file_job_types.JobId) -> port.Store:
        return self._opened(store_urls.url_inside(self.store.url, namespace, job.dashed))

    def find_commit(self, job: bytes, part: int, run: int) -> filejobs.Commit | None:
        """Return the commit record of a run of a part if it is in memory, else None. Records never
        change.
        """
        return self._read_commits.get((job, part, run))

    def remember_commit(self, job: bytes, commit: filejobs.Commit) -> None:
        """Keep in memory a commit record that is in the store."""
        with self._lock:
            self._read_commits[job, commit.part, commit.run] = commit
            if len(self._read_commits) > MAX_COMMITS:
                self._read_commits.popitem(last=False)

    def read_commits(
        self, namespace: str, job: file_job_types.JobId, wanted: Iterable[tuple[int, int]]
    ) -> dict[int, filejobs.Commit]:
        """Return the readable commit records of these (part, run) pairs, by number of the part.
        Blocks.
        """
        directory, result = self.directory(namespace, job), {}
        for part, run in wanted:
            found = self.find_commit(job.uuid, part, run)
            try:
                found = found or part_commits.find(directory, part, run)
            except data_errors.ObjectDamaged as error:
                log.warning("a commit record cannot be read", extra={"error": str(error)})
            if found is not None:
                self.remember_commit(job.uuid, found)
                result[part] = found
        return result


def _file_spec(spec: item_source.Policy) -> filejobs.FileJobSpec:
    return cast(filejobs.FileJobSpec, spec)


class FileItems:
    """The parts of one file as the items of a job (`item_source.ItemSource`)."""

    kind, noun, nouns, first = "file", "part", "parts", 1
    ends_with_task = keeps_tasks = False
    shown_tasks = 0
    window = 256
    completion: resolved_job_settings.Completion | None = None
    results: bytes | attempts.Payload | None = b""
    failed_reason: str = _R.PARTS_FAILED
    finalizer_reason: str = _R.REDUCER_FAILED

    def __init__(
        self,
        sources: FileSources,
        spec: filejobs.FileJobSpec,
        manifest: filejobs.Manifest,
        progress: file_job_types.FileProgress,
    ) -> None:
        self._sources = sources
        self.definition, self.progress = manifest, progress
        self.size = len(manifest.parts)
        self.finalizer = self.size > 1 or spec.reducer is not None
        self.blobs = _blob_digests(spec)

    def work(self, job: live_job_state.Job, item: int) -> item_source.Work:
        """Return the work of an item's task: a call of `work.part.run`, or of `work.reduce.run`
        for item 0.
        """
        spec = _file_spec(job.spec)
        mapper = spec.mapper if item else spec.reducer
        call = api_task.Call(
            function=MAP if item else REDUCE,
            args=(self._part_work(job, item) if item else self._reduce_work(job),),
            environment=None if mapper is None else mapper.environment,
        )
        return item_source.Work(
            api_task.TaskSpec(
                cluster_name=spec.cluster_name,
                call=call,
                priority=spec.priority,
                retry=spec.retry.of_task,
                timeouts=spec.timeouts if item else api_task.Timeouts(),
                run=job.run_of(item),
            )
        )

    def task_name(self, job: live_job_state.Job, item: int) -> str:
        """Return the job's id and the number of the part."""
        return f"{job.id.text}-{item}"

    def hook_tasks(
        self, job: live_job_state.Job, event: api_job.HookEvent
    ) -> list[item_source.ExtraTask]:
        """Return an empty list: file jobs have no hooks."""
        return []

    def finalizer_arguments(self, run: int) -> None:
        """Return None: the reducer reads the results from the store."""

    def detail(self, job: live_job_state.Job) -> None:
        """Return None: `progress` has all facts that views show."""

    def failure_text(self, result: item_source.ItemResult) -> str:
        """Return a text that names the failed part and the reason."""
        return f"{self.noun} {result.item}: {result.message}"

    def _store_url(self, directory: str) -> str:
        return store_urls.url_inside(self._sources.worker_url, *directory.split("/"))

    def _part_work(self, job: live_job_state.Job, part: int) -> filejobs.PartWork:
        spec, directory, name = _file_spec(job.spec), None, file_job_types.DIRECTORY_INPUT
        if self.progress.source is not None:
            directory, _, name = self.progress.source.rpartition("/")
        return filejobs.PartWork(
            store=self._store_url(job.directory),
            job=job.id.text,
            input=name,
            format=spec.input,
            part=self.definition.parts[part - 1],
            run=job.run_of(part),
            mapper=spec.mapper,
            bad_records=spec.bad_records,
            header=self.definition.header,
            input_store=None if directory is None else self._store_url(directory),
        )

    def _reduce_work(self, job: live_job_state.Job) -> filejobs.ReduceWork:
        return filejobs.ReduceWork(
            store=self._store_url(job.directory),
            job=job.id.text,
            parts=tuple((n, job.run_of(n)) for n in range(1, job.size + 1)),
            run=job.run,
            reducer=_file_spec(job.spec).reducer,
            format=self.definition.format,
        )

    def failure(self, job: live_job_state.Job) -> tuple[str, str] | None:
        """Return reason and message of a failure if the job has too many bad records, else None.

        With `badRecords: fail`, the first failed part, whatever its reason, ends the job while
        other parts are unfinished.
        """
        spec, counts = _file_spec(job.spec), job.counts
        bad, most = self.progress.failed, spec.max_failed_records
        if most is not None and bad > most:
            return _R.TOO_MANY_BAD_RECORDS, f"{bad} records are bad, maxFailedRecords is {most}"
        lines, share = self.progress.lines, spec.max_failed_percent
        if share is not None and bad * 100 > share * lines:
            message = f"{bad} of {lines} records are bad, maxFailedPercent is {share:g}"
            return _R.TOO_MANY_BAD_RECORDS, message
        refused = counts.failed and spec.bad_records is filejobs.BadRecords.FAIL
        if refused and counts.closed < job.size:
            return _R.PART_FAILED, job.first_failure
        return None

    def count_result(self, result: item_source.ItemResult) -> None:
        """Add the record counts of a part to the progress; for item 0, add the published files."""
        commit: filejobs.Commit = result.data
        if result.item:
            self.progress = self._add_counts(self.progress, commit)
        else:
            self.progress = msgspec.structs.replace(
                self.progress, output=commit.output, errors=commit.errors
            )

    def _add_counts(
        self, known: file_job_types.FileProgress, commit: filejobs.Commit
    ) -> file_job_types.FileProgress:
        part, found = self.definition.parts[commit.part - 1], commit.records
        return msgspec.structs.replace(
            known,
            succeeded=known.succeeded + found.succeeded,
            failed=known.failed + found.failed,
            skipped=known.skipped + found.skipped,
            done_bytes=known.done_bytes + part.end - part.start,
        )

    def record_end(self, job: live_job_state.Job) -> None:
        """Do nothing, since the commit record of the job has all facts about its end."""

    def to_item_result(self, commit: filejobs.Commit) -> item_source.ItemResult:
        """Convert a commit record to the result of an item."""
        reason, message = "", commit.message
        if commit.part:
            commit = check_commit(commit, self.definition.parts[commit.part - 1])
            message = commit.message
        elif commit.outcome is _O.SUCCEEDED:
            reason, message = _success_warning(commit.records)
        return item_source.ItemResult(
            commit.part, commit.run, commit.outcome, reason, message, commit
        )

    def prepare(self, job: live_job_state.Job, inline: bytes | None) -> Callable[[], None]:
        """Return a function that writes `job.json`, and the input if it is in the journal."""
        file, directory = self.job_file(job), self._directory(job)
        return lambda: job_directory.write_job_file(directory, file, inline)

    def job_file(self, job: live_job_state.Job) -> job_directory.JobFile:
        """Return the current content of `job.json`."""
        return job_directory.JobFile(
            id=job.id.text,
            uuid=job.id.dashed,
            namespace=job.namespace,
            user=job.user,
            created=job.created,
            run=job.run,
            spec=_file_spec(job.spec),
            manifest=self.definition,
            source=self.progress.source,
        )

    def recover(self, job: live_job_state.Job) -> Callable[[], list[item_source.ItemResult]]:
        """Return a function that reads the commit records of unfinished parts, and of the job's
        run."""
        directory, job_run, base = self._directory(job), job.run, job.base_run
        known = job.items.snapshot()

        def wanted(part: int, run: int) -> bool:
            if not 0 < part <= known.size:
                return part == 0 and run == job_run
            is_open = known.states[part] < item_states.ItemState.SUCCEEDED
            return is_open and run == (known.runs[part] or base)

        return lambda: [
            self.to_item_result(one) for one in job_directory.read_commits(directory, wanted)
        ]

    def settle(
        self, job: live_job_state.Job, step: plan_steps.Settle, returned: Callable[[], bytes | None]
    ) -> Callable[[], item_source.ItemResult | item_source.Damage | None]:
        """Return a function that reads the commit record of a run of an item, or creates it.

        It returns `Damage` if the outputs of parts are damaged.
        """
        directory, now = self._directory(job), self._sources.clock.wall()
        if step.item or step.outcome not in (None, _O.SUCCEEDED):
            return lambda: self._remember_result(
                job, job_directory.settle_part(directory, step, now)
            )
        if step.outcome is None:
            reduced = _decode_reduced(returned())
            return lambda: self._finalize_result(
                job, job_directory.settle_reducer(directory, step.run, reduced, now)
            )

        def publish() -> item_source.ItemResult | item_source.Damage | None:
            part = self._read_commits(job, range(1, job.size + 1)).get(1)
            if part is None and job.size:
                lost = filejobs.Damaged(part=1, run=step.run, message="it has no commit")
                return self._finalize_result(job, (lost,))
            return self._finalize_result(
                job, job_directory.publish_only_part(directory, step.run, part, now)
            )

        return publish

    def _finalize_result(
        self, job: live_job_state.Job, found: filejobs.Commit | tuple[filejobs.Damaged, ...]
    ) -> item_source.ItemResult | item_source.Damage | None:
        if isinstance(found, filejobs.Commit):
            return self._remember_result(job, found)
        hurt = {one.part for one in found if 0 < one.part <= job.size}
        progress = msgspec.structs.replace(
            self.progress, succeeded=0, failed=0, skipped=0, done_bytes=0
        )
        whole = (part for part in range(1, job.size + 1) if part not in hurt)
        for commit in self._read_commits(job, whole).values():
            progress = self._add_counts(progress, commit)
        message = f"part {found[0].part}: {found[0].message}"
        return item_source.Damage(tuple(sorted(hurt)), progress, message)

    def _remember_result(
        self, job: live_job_state.Job, commit: filejobs.Commit | None
    ) -> item_source.ItemResult | None:
        if commit is None:
            return None
        self._sources.remember_commit(job.id.uuid, commit)
        return self.to_item_result(commit)

    def _read_commits(
        self, job: live_job_state.Job, parts: Iterable[int]
    ) -> dict[int, filejobs.Commit]:
        wanted = ((part, job.run_of(part)) for part in parts)
        return self._sources.read_commits(job.namespace, job.id, wanted)

    def purge(self, job: live_job_state.Job) -> Callable[[], None]:
        """Return a function that deletes the job's directory."""
        store, prefix = self._sources.store, f"{job.directory}/"
        return lambda: job_directory.purge(store, prefix)

    def _directory(self, job: live_job_state.Job) -> port.Store:
        return self._sources.directory(job.namespace, job.id)


def _blob_digests(spec: filejobs.FileJobSpec) -> bytes:
    """Return the digests of the blobs that mapper and reducer name, concatenated."""
    named: set[str | None] = set()
    for mapper in (spec.mapper, spec.reducer):
        if mapper is not None and (mapper.code or mapper.environment):
            named |= {mapper.code, mapper.environment}
    return b"".join(sorted(filter(None, map(names.digest, named))))


def _decode_reduced(returned: bytes | None) -> filejobs.Reduced | None:
    """Decode the value that the reducing call returned; return None if it cannot be decoded."""
    try:
        return None if returned is None else msgspec.json.decode(returned, type=filejobs.Reduced)
    except msgspec.MsgspecError:
        return None


def _success_warning(counts: filejobs.Records) -> tuple[str, str]:
    """Return reason and message of a warning about a job that has succeeded, or empty texts."""
    if counts.succeeded or not counts.failed:
        return "", ""
    which = f"all {counts.failed} records are" if counts.failed > 1 else "its only record is"
    message = (
        f"{which} bad, so the result is empty. /errors says why of each; with maxFailedPercent or "
        "badRecords=fail such a job fails"
    )
    return _R.ALL_RECORDS_BAD, message
