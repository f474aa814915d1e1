"""Files of file jobs for the agents of ponds: `/ponds/NAMESPACE/NAME/jobs/JOB/DIRECTORY[/FILE]`.

Used by `pond_exchange`, which has checked that the caller is an agent of a pond of that namespace.
A file job has four directories: `results`, with its result as one file; `parts`, with the result of
each part; `errors`, with the bad records of each part that has any; `input`, with its input. An
unfinished job has no results (409: retry); a failed job has none (410) unless it is run again.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from kilnwork.api import filejobs, pond_messages
from kilnwork.jobs import file_job_service, file_job_types
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import file_bodies

_BYTES = "application/octet-stream"
_SUFFIXES = {filejobs.Format.CSV: "csv", filejobs.Format.TEXT: "txt"}
"""File name suffix of a stored input; the elements of a JSON array are stored as lines."""

_PART = "{:05d}.ndjson"


class _File(NamedTuple):
    path: str
    body: file_bodies.Body

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.body.pieces)


class PondFiles:
    """Handler that lists and sends the files of file jobs."""

    def __init__(self, jobs: file_job_service.FileJobs) -> None:
        self._jobs = jobs
        self._directories: dict[str, Callable[[file_job_types.JobView], Awaitable[list[_File]]]] = {
            "results": self._results,
            "parts": self._parts,
            "errors": self._errors,
            "input": self._input,
        }

    async def listing(self, namespace: str, job: str, directory: str) -> bytes:
        """Return the files in a directory of a file job, a `FileList` as JSON. Raises NotFound,
        Conflict, Gone.
        """
        found = await self._found(namespace, job, directory)
        listed = [
            pond_messages.ListedFile(path=one.path, size=one.size, digest=one.body.whole)
            for one in found
        ]
        return msgspec.json.encode(pond_messages.FileList(files=tuple(listed)))

    async def send(
        self,
        request: asgi.Request,
        place: tuple[str, str, str, str],
        response: asgi.Response,
    ) -> None:
        """Send one file, or a range of it. `place`: namespace, job, directory, file. Raises the
        errors of `listing`.
        """
        namespace, job, directory, path = place
        if directory == "parts":
            found = await self._part(self._view(namespace, job), path)
        else:
            found = await self._found(namespace, job, directory)
        for one in found:
            if one.path == path:
                await file_bodies.send(
                    request,
                    response,
                    one.body,
                    store=self._jobs.store,
                    pool=None,
                    slot=contextlib.nullcontext(),
                )
                return
        raise errors.NotFound(f"job {job} has no file {directory}/{path}")

    def _view(self, namespace: str, job: str) -> file_job_types.JobView:
        found = self._jobs.job(namespace, job)
        if found is None:
            raise errors.NotFound(f"there is no file job {job!r} in namespace {namespace}")
        return found

    async def _found(self, namespace: str, job: str, directory: str) -> list[_File]:
        view = self._view(namespace, job)
        files = self._directories.get(directory)
        if files is None:
            known = ", ".join(self._directories)
            raise errors.NotFound(f"a file job has the directories {known}, and no {directory!r}")
        return await files(view)

    async def _results(self, view: file_job_types.JobView) -> list[_File]:
        output = self._output(view)
        if output.key == filejobs.OUTPUTS:
            commits = await self._jobs.commits(view.namespace, view.id)
            found = [file_bodies.piece_of_file(view, output) for _, output in _outputs(commits)]
        else:
            found = [file_bodies.piece_of_file(view, output)]
        return [_File("results.ndjson", file_bodies.Body(found, _BYTES, output.sha256))]

    async def _parts(self, view: file_job_types.JobView) -> list[_File]:
        self._output(view)
        commits = await self._jobs.commits(view.namespace, view.id)
        return [_one(view, _PART.format(part), output) for part, output in _outputs(commits)]

    async def _part(self, view: file_job_types.JobView, path: str) -> list[_File]:
        """Return the file of one part, without reading the other parts: a job has up to ten
        thousand.
        """
        self._output(view)
        text = path.partition(".")[0]
        if not (text.isascii() and text.isdigit() and _PART.format(int(text)) == path):
            return []
        part = await self._jobs.part(view.namespace, view.id, int(text))
        found = () if part is None or part.commit is None else _outputs([part.commit])
        return [_one(view, path, output) for _, output in found]

    async def _errors(self, view: file_job_types.JobView) -> list[_File]:
        if not view.phase.final:
            raise _not_yet(view)
        commits = await self._jobs.commits(view.namespace, view.id)
        return [
            _one(view, _PART.format(one.part), one.errors)
            for one in commits
            if one.errors is not None and one.errors.bytes
        ]

    async def _input(self, view: file_job_types.JobView) -> list[_File]:
        small = self._jobs.small_input(view.namespace, view.id)
        key = view.progress.source or f"{view.directory}/{file_job_types.DIRECTORY_INPUT}"
        piece = file_bodies.Piece(key, view.progress.bytes, view.progress.sha256, small)
        name = f"input.{_SUFFIXES.get(view.spec.input.format, 'jsonl')}"
        return [_File(name, file_bodies.Body([piece], _BYTES, piece.sha256))]

    def _output(self, view: file_job_types.JobView) -> filejobs.StoredFile:
        if view.progress.output is not None:
            return view.progress.output
        if view.phase.final:
            raise errors.Gone(
                f"file job {view.id} is {view.phase} and has no result: "
                f"{view.message or view.reason}; `kiln redrive {view.id}` runs what failed again"
            )
        raise _not_yet(view)


def _outputs(
    commits: Iterable[filejobs.Commit],
) -> Iterator[tuple[int, filejobs.StoredFile]]:
    """Yield the number and the result file of each part that has succeeded."""
    for one in commits:
        if one.outcome == filejobs.PartOutcome.SUCCEEDED and one.output is not None:
            yield one.part, one.output


def _one(view: file_job_types.JobView, path: str, found: filejobs.StoredFile) -> _File:
    return _File(
        path, file_bodies.Body([file_bodies.piece_of_file(view, found)], _BYTES, found.sha256)
    )


def _not_yet(view: file_job_types.JobView) -> errors.Conflict:
    done, parts = view.parts.succeeded, view.parts.total
    return errors.Conflict(f"file job {view.id} is {view.phase}: {done} of {parts} parts are done")
