"""What the catalog has not got yet of jobs, gathered for its next batch. Used by the engine."""

from kilnwork.jobs import catalog, model, records, rows


class Unkept:
    """Of all jobs. `inlined`: rows of jobs whose input may be in the catalog alone."""

    def __init__(self) -> None:
        self._new: dict[records.Job, tuple[model.Key | None, bytes | None]] = {}
        self._redriven: set[records.Job] = set()
        self.inlined: set[int] = set()

    def add(self, job: records.Job, key: model.Key | None, inline: bytes | None) -> None:
        """It is new."""
        self._new[job] = (key, inline)
        if inline is not None:
            self.inlined.add(job.row)

    def redriven(self, job: records.Job) -> None:
        """Its parts that have not succeeded are open again."""
        self._redriven.add(job)

    def gather(self, batch: catalog.Batch, job: records.Job) -> None:
        """Add what is to be written of it."""
        new = self._new.pop(job, None)
        if new is not None:
            key, inline = new
            batch.jobs.append(rows.of_new(job, key))
            batch.inputs.append(rows.of_input(job, inline))
        elif job.dirty or job.dirty_parts:
            batch.updates.append((*rows.of_job(job), job.row))
        if job in self._redriven:
            self._redriven.remove(job)
            batch.redriven.append((job.row,))
        for part, commit in job.dirty_parts.items():
            batch.parts.append(rows.of_part(job, part, commit))
        if job.stored and job.row in self.inlined:
            self.inlined.discard(job.row)
            batch.stored.append((job.row,))
        if job.deleting:
            batch.freed.append((job.row,))
        job.dirty_parts.clear()
        job.dirty = False
